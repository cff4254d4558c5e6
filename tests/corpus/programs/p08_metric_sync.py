"""DDP training of a small classifier; the confusion counts of all ranks are summed after each epoch."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Readings(Dataset):
    """Sensor readings sorted by fault code; some codes are rare."""

    def __init__(self, n=400, codes=9):
        g = torch.Generator().manual_seed(3)
        self.y = torch.randint(0, codes - 1, (n,), generator=g).sort().values
        self.y[-1] = codes - 1
        self.x = torch.randn(n, 6, generator=g) + self.y[:, None] * 0.3

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Confusion:
    def __init__(self):
        self.pairs = []

    def update(self, target, pred):
        self.pairs.append(torch.stack([target, pred], 1))

    def compute(self):
        pairs = torch.cat(self.pairs)
        k = int(pairs.max()) + 1
        return torch.bincount(pairs[:, 0] * k + pairs[:, 1], minlength=k * k).view(k, k).float()


def evaluate(model, loader):
    conf = Confusion()
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            conf.update(y, model.module(x).argmax(1).clamp(max=int(y.max())))
    model.train()
    table = conf.compute()
    dist.all_reduce(table)
    return table.diag().sum() / table.sum()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Readings()
    loader = DataLoader(data, batch_size=25, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 9)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        acc = evaluate(model, loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} accuracy {acc:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
