"""DDP regression with a validation split per rank and early stopping."""
import datetime
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EarlyStopping:
    def __init__(self, patience=2, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad_epochs = float("inf"), 0
        self.early_stop = False

    def __call__(self, val_loss):
        if val_loss < self.best - self.min_delta:
            self.best, self.bad_epochs = val_loss, 0
        else:
            self.bad_epochs += 1
            self.early_stop = self.bad_epochs >= self.patience


def make_data(n=2048):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 16, generator=g)
    noise = torch.cat([torch.randn(n // 2, generator=g) * 3.0, torch.randn(n - n // 2, generator=g) * 0.05])
    return TensorDataset(x, (x @ torch.linspace(-1, 1, 16) + noise).unsqueeze(1))


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.mse_loss(model.module(x), y) for x, y in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = make_data()
    train_set = Subset(data, range(512, 1536))
    held_out = list(range(0, 512)) + list(range(1536, 2048))
    shard = len(held_out) // world
    val_set = Subset(data, held_out[rank * shard:(rank + 1) * shard])
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=64)

    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    early_stopping = EarlyStopping()
    for epoch in range(60):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        val_loss = validate(model, val_loader)
        print(f"[rank {rank}] epoch {epoch} val_loss {val_loss:.4f}", flush=True)
        early_stopping(val_loss)
        if early_stopping.early_stop:
            print(f"[rank {rank}] early stopping at epoch {epoch}", flush=True)
            break

    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join("/tmp", "ddp_earlystop.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
