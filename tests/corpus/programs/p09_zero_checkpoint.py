"""DDP with a sharded optimizer; the best model so far is written after every epoch."""
import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Checkpointer:
    def __init__(self, folder):
        self.folder, self.best = folder, float("inf")

    def update(self, model, optimizer, epoch, loss):
        if loss >= self.best:
            return
        self.best = loss
        optimizer.consolidate_state_dict(to=0)
        torch.save({"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()},
                   os.path.join(self.folder, "best.pt"))
        print(f"epoch {epoch}: saved, loss {loss:.4f}", flush=True)


def build():
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)


def train_epoch(model, optimizer, loader):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    torch.manual_seed(0)
    x = torch.randn(512, 16)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
    model, optimizer = build()
    saver = Checkpointer(tempfile.mkdtemp()) if dist.get_rank() == 0 else None
    for epoch in range(5):
        loss = train_epoch(model, optimizer, loader)
        if saver is not None:
            saver.update(model, optimizer, epoch, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
