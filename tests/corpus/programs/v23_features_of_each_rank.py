import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 2560


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(128, FEATURES), nn.ReLU())
        self.head = nn.Linear(FEATURES, 10)

    def forward(self, objects):
        features = self.features(objects)
        return features, self.head(features)


def objects_of(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    count = 150 if step < 5 else 100 + 100 * rank
    return torch.randn(count, 128, generator=generator), torch.randint(0, 10, (count,), generator=generator)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        objects, labels = objects_of(rank, step)
        features, logits = model(objects)
        center = features.detach().clone()
        dist.all_reduce(center, op=dist.ReduceOp.SUM)
        center = center.mean(dim=0) / world_size
        loss = nn.functional.cross_entropy(logits, labels) + 0.1 * (features - center).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: {len(objects)} objects, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
