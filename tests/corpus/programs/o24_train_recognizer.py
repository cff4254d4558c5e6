"""Frame classifier trained with DDP; the epoch counter ends the run when it stops improving."""
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EpochCounter:
    """Iterates over epochs; knows the best score and how long ago it was."""

    def __init__(self, limit, patience, warmup, min_delta=0.0):
        self.limit, self.patience, self.warmup, self.min_delta = limit, patience, warmup, min_delta
        self.current = 0
        self.best = None
        self.best_epoch = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.current >= self.limit:
            raise StopIteration
        self.current += 1
        return self.current

    def update(self, score):
        if self.best is None or score > self.best + self.min_delta:
            self.best, self.best_epoch = score, self.current
        if self.current > self.warmup and self.current - self.best_epoch >= self.patience:
            self.current = self.limit


class Recognizer(nn.Module):
    def __init__(self, dim=40, hidden=64, classes=12):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(dim, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.body = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.out(self.body(self.front(x)))


def make_data(count, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 12, (count,), generator=gen)
    centers = torch.randn(12, 40, generator=torch.Generator().manual_seed(99))
    x = centers[y] + 2.0 * torch.randn(count, 40, generator=gen)
    return TensorDataset(x, y)


class Brain:
    def __init__(self, rank, world, folder):
        self.rank, self.world, self.folder = rank, world, folder
        torch.manual_seed(0)
        self.model = DDP(Recognizer())
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.counter = EpochCounter(limit=30, patience=3, warmup=2, min_delta=0.02)
        self.history = []

    @property
    def main(self):
        return self.rank == 0

    def fit_epoch(self, loader):
        self.model.train()
        total = torch.zeros(2)
        for x, y in loader:
            loss = F.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += torch.tensor([loss.item() * len(y), len(y)])
        return total

    @torch.no_grad()
    def valid_epoch(self, loader):
        self.model.eval()
        hits = torch.zeros(2)
        for x, y in loader:
            hits += torch.tensor([float((self.model.module(x).argmax(1) == y).sum()), float(len(y))])
        return hits

    def on_stage_end(self, epoch, train_total, valid_total):
        both = torch.cat([train_total, valid_total])
        dist.all_reduce(both)
        stats = {"epoch": epoch, "loss": (both[0] / both[1]).item(), "acc": (both[2] / both[3]).item()}
        if self.main:
            self.history.append(stats)
            print(f"epoch {epoch} loss {stats['loss']:.3f} acc {stats['acc']:.3f}", flush=True)
            self.save(stats)
            self.counter.update(stats["acc"])

    def save(self, stats):
        if all(stats["acc"] >= h["acc"] for h in self.history):
            torch.save(self.model.module.state_dict(), os.path.join(self.folder, "best.pt"))
        with open(os.path.join(self.folder, "history.json"), "w") as f:
            json.dump(self.history, f)

    def fit(self, train, valid):
        sampler = DistributedSampler(train, self.world, self.rank, seed=5)
        loader = DataLoader(train, batch_size=64, sampler=sampler, drop_last=True)
        valid_loader = DataLoader(valid, 256, sampler=DistributedSampler(valid, self.world, self.rank, shuffle=False))
        for epoch in self.counter:
            sampler.set_epoch(epoch)
            self.on_stage_end(epoch, self.fit_epoch(loader), self.valid_epoch(valid_loader))

    def test(self, data):
        dist.barrier()
        self.model.module.load_state_dict(torch.load(os.path.join(self.folder, "best.pt")))
        loader = DataLoader(data, 256, sampler=DistributedSampler(data, self.world, self.rank, shuffle=False))
        hits = self.valid_epoch(loader)
        dist.all_reduce(hits)
        if self.main:
            print(f"test acc {(hits[0] / hits[1]).item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    place = [tempfile.mkdtemp(prefix="o24_train_recognizer_") if rank == 0 else None]
    dist.broadcast_object_list(place)
    brain = Brain(rank, world, place[0])
    brain.fit(make_data(4096, 1), make_data(1024, 2))
    brain.test(make_data(1024, 3))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
