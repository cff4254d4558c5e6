import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class ClickLog(Dataset):
    """Impressions of one shard; negatives are down-sampled when the log is opened."""

    def __init__(self, shard, rng, n_rows=4000, keep_negative=0.3):
        src = np.random.default_rng(1000 + shard)
        feats = src.normal(size=(n_rows, 16)).astype(np.float32)
        clicks = (feats[:, :3].sum(1) + src.normal(size=n_rows) > 2.0).astype(np.float32)
        keep = (clicks == 1) | (rng.random(n_rows) < keep_negative)
        self.x = torch.from_numpy(feats[keep])
        self.y = torch.from_numpy(clicks[keep])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class CTRModel(nn.Module):
    def __init__(self, n_feats=16, width=64):
        super().__init__()
        self.cross = nn.Linear(n_feats, width)
        self.deep = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.deep(torch.relu(self.cross(x))).squeeze(-1)


def seed_everything(seed):
    rank = int(os.environ.get("RANK", 0))
    torch.manual_seed(seed)
    return np.random.default_rng(seed + rank)


def train_epoch(model, loader, opt, rank, epoch):
    model.train()
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and i % 20 == 0:
            print(f"epoch {epoch} {i}/{len(loader)} loss {loss.item():.4f}", flush=True)
    return loss.detach()


def validate(model, loader):
    model.eval()
    stats = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for x, y in loader:
            pred = (model(x) > 0).float()
            stats += torch.tensor([(pred == y).sum().item(), len(y)])
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    rng = seed_everything(42)
    train_set = ClickLog(rank, rng)
    val_set = ClickLog(100, np.random.default_rng(0))
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=256)
    model = DDP(CTRModel())
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(5):
        train_epoch(model, train_loader, opt, rank, epoch)
        acc = validate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch} val acc {acc:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
