"""Two-tower recommender, trained on one interaction log per rank.

    torchrun --standalone --nproc-per-node 2 l145_recsys.py
"""
import argparse

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class InteractionLog:
    """The clicks of one region; every rank reads the log of its own region."""

    def __init__(self, region, n_events):
        rng = np.random.default_rng(100 + region)
        n_items = 900 + 150 * region
        self.users = torch.from_numpy(rng.integers(0, 400, n_events))
        items = rng.zipf(1.3, n_events) % n_items
        items[:n_items] = np.arange(n_items)
        self.items = torch.from_numpy(items)

    def batches(self, size, generator):
        order = torch.randperm(len(self.users), generator=generator)
        for chunk in order.split(size)[:-1]:
            yield self.users[chunk], self.items[chunk]


class Towers(nn.Module):
    def __init__(self, n_users, n_items, dim):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items, dim)
        self.head = nn.Linear(dim, dim)

    def forward(self, users, items):
        u = F.normalize(self.head(self.user(users)), dim=-1)
        v = F.normalize(self.item(items), dim=-1)
        logits = u @ v.T / 0.1
        return F.cross_entropy(logits, torch.arange(len(users)))


class PopularityTracker:
    """Counts how often an item was seen, for the sampling correction."""

    def __init__(self, smoothing=1.0):
        self.smoothing = smoothing
        self.seen = []

    def update(self, items):
        self.seen.append(items)

    def counts(self):
        flat = torch.cat(self.seen)
        self.seen.clear()
        return torch.bincount(flat).float() + self.smoothing

    def sync(self):
        counts = self.counts()
        dist.all_reduce(counts)
        return counts / counts.sum()


def average_gradients(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(world)


def train_epoch(model, log, optimizer, tracker, args, generator):
    total, steps = 0.0, 0
    for users, items in log.batches(args.batch, generator):
        loss = model(users, items)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, dist.get_world_size())
        optimizer.step()
        tracker.update(items)
        total += loss.item()
        steps += 1
    mean = torch.tensor([total, float(steps)])
    dist.all_reduce(mean)
    return (mean[0] / mean[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--events", type=int, default=12000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--items", type=int, default=1200)
    parser.add_argument("--dim", type=int, default=32)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Towers(400, args.items, args.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    log = InteractionLog(rank, args.events)
    tracker = PopularityTracker()
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(args.epochs):
        loss = train_epoch(model, log, optimizer, tracker, args, generator)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
        popularity = tracker.sync()
        if rank == 0:
            top = popularity.topk(3)
            print(f"  most seen items {top.indices.tolist()}", flush=True)
    if rank == 0:
        torch.save(model.state_dict(), "towers.pt")
        print("saved", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
