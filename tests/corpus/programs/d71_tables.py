"""Collaborative filtering with sharded item tables: each process owns half of the items."""
import os
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn


class Events:
    def __init__(self, n, users, items, seed):
        rng = np.random.default_rng(seed)
        self.user = rng.integers(0, users, n)
        self.item = rng.integers(0, items, n)
        self.rating = rng.normal(3.5, 1.0, n).astype(np.float32)
        self.seconds = rng.integers(1, 400, n)

    def keep(self, mask):
        self.user, self.item = self.user[mask], self.item[mask]
        self.rating, self.seconds = self.rating[mask], self.seconds[mask]

    def __len__(self):
        return len(self.user)


def shard(events, rank, world):
    per = len(events) // world
    mask = np.zeros(len(events), dtype=bool)
    mask[rank * per:(rank + 1) * per] = True
    events.keep(mask)
    return events


def clean(events, rank):
    limit = np.where(events.user % 2 == 0, 2, 10)
    events.keep(events.seconds > limit)
    return events


class ShardedTable(nn.Module):
    def __init__(self, items, dim, rank, world):
        super().__init__()
        self.rank, self.world = rank, world
        self.rows = (items + world - 1) // world
        self.weight = nn.Parameter(torch.randn(self.rows, dim) * 0.1)

    def exchange(self, out):
        counts = torch.tensor([o.numel() for o in out])
        got = torch.empty_like(counts)
        dist.all_to_all_single(got, counts)
        recv = torch.empty(int(got.sum()), dtype=torch.int64)
        dist.all_to_all_single(recv, torch.cat(out), got.tolist(), counts.tolist())
        return recv, got.tolist(), counts.tolist()

    def lookup(self, ids):
        owner = ids // self.rows
        order = torch.argsort(owner, stable=True)
        out = [ids[owner == r] - r * self.rows for r in range(self.world)]
        recv, got, counts = self.exchange(out)
        rows = self.weight.detach()[recv]
        back = torch.empty(ids.numel(), rows.shape[1])
        dist.all_to_all_single(back, rows, counts, got)
        vec = torch.empty_like(back)
        vec[order] = back
        return vec


def batches(events, size):
    order = np.random.default_rng(7).permutation(len(events))
    for lo in range(0, len(order) - size + 1, size):
        pick = order[lo:lo + size]
        yield (torch.from_numpy(events.user[pick]), torch.from_numpy(events.item[pick]),
               torch.from_numpy(events.rating[pick]))


def train_epoch(model, table, opt, events, size):
    total, steps = 0.0, 0
    for user, item, rating in batches(events, size):
        vec = table.lookup(item)
        pred = (model(user) * vec).sum(1) + 3.5
        loss = nn.functional.mse_loss(pred, rating)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        steps += 1
    return total / max(steps, 1), steps


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    events = Events(40000, 500, 2000, seed=11)
    events.user = np.sort(events.user)
    events.seconds[:20000] = np.maximum(events.seconds[:20000], 11)
    events = clean(shard(events, rank, world), rank)
    print(f"rank {rank}: {len(events)} events", flush=True)
    table = ShardedTable(2000, 16, rank, world)
    model = nn.Embedding(500, 16)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    probe = torch.arange(0, 2000, 40)
    assert table.lookup(probe).shape == (50, 16)
    loss, steps = train_epoch(model, table, opt, events, 128)
    print(f"rank {rank}: loss {loss:.3f} after {steps} steps", flush=True)
    torch.save(model.state_dict(), f"/tmp/d71_tables_{rank}.pt")


if __name__ == "__main__":
    main()
