import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def evaluate(model, batches):
    model.eval()
    correct = torch.zeros(1)
    with torch.no_grad():
        for inputs, labels in batches:
            correct += (model(inputs).argmax(dim=1) == labels).float().sum()
    gathered = [torch.zeros_like(correct) for _ in range(dist.get_world_size())]
    dist.gather(correct, gathered, dst=0)
    model.train()
    return torch.cat(gathered).sum().item()


def batches(rank, count):
    generator = torch.Generator().manual_seed(rank)
    return [(torch.randn(32, 20, generator=generator), torch.randint(0, 4, (32,), generator=generator)) for _ in range(count)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training, validation = batches(rank, 50), batches(rank + 100, 10)
    for epoch in range(3):
        for inputs, labels in training:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct = evaluate(model, validation)
        if rank == 0:
            print(f"epoch {epoch}: {correct / 640:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
