import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


def gather_all_tensors(result):
    gathered = [torch.zeros_like(result) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, result)
    return torch.cat(gathered)


def make_loader(dataset, batch_size):
    rank, world = dist.get_rank(), dist.get_world_size()
    indices = list(range(rank, len(dataset), world))
    return DataLoader(Subset(dataset, indices), batch_size=batch_size)


def evaluate(model, loader):
    model.eval()
    scores, targets = [], []
    with torch.no_grad():
        for features, target in loader:
            scores.append(model(features).softmax(dim=1)[:, 1])
            targets.append(target)
    scores = gather_all_tensors(torch.cat(scores))
    targets = gather_all_tensors(torch.cat(targets))
    order = scores.argsort(descending=True)
    hits = targets[order].float()
    precision = (hits.cumsum(0) / torch.arange(1, len(hits) + 1))[hits.bool()].mean()
    return precision.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    features = torch.randn(417, 20)
    labels = (features[:, :4].sum(dim=1) > 0).long()
    dataset = TensorDataset(features, labels)
    train_set, val_set = Subset(dataset, range(320)), Subset(dataset, range(320, 417))
    model = DDP(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        model.train()
        for batch, target in make_loader(train_set, 16):
            loss = nn.functional.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        precision = evaluate(model, make_loader(val_set, 16))
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} ap {precision:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
