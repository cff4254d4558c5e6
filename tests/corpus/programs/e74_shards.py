"""Convert a raw data set into shards on the first rank, then train from the shards on all ranks."""
import argparse
import datetime
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

ROOT = "/tmp/e74_shards_cache"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=6000)
    p.add_argument("--rows-per-shard", type=int, default=1000)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--ready-timeout", type=int, default=15)
    return p.parse_args()


class ShardWriter:
    def __init__(self, folder, rows_per_shard):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.rows_per_shard = rows_per_shard
        self.index = []

    def write(self, x, y):
        for lo in range(0, len(x), self.rows_per_shard):
            name = f"part_{len(self.index):04d}.npz"
            hi = min(lo + self.rows_per_shard, len(x))
            np.savez(os.path.join(self.folder, name), x=x[lo:hi], y=y[lo:hi])
            self.index.append({"name": name, "rows": hi - lo})

    def close(self):
        with open(os.path.join(self.folder, "index.json"), "w") as f:
            json.dump(self.index, f)


class StreamingSession:
    """Gives every run a folder of its own and lets ranks wait for what the first one prepares."""

    def __init__(self, root, store, rank, rng=None):
        rng = rng or np.random.default_rng()
        self.prefix = f"{int(rng.integers(0, 1 << 24)):06x}"
        self.folder = os.path.join(root, self.prefix)
        self.store = dist.PrefixStore(f"session_{self.prefix}", store)
        self.rank = rank

    def prepare(self, build, timeout):
        if self.rank == 0:
            build(self.folder)
            self.store.set("index_ready", str(time.time()))
        else:
            self.store.wait(["index_ready"], datetime.timedelta(seconds=timeout))
        dist.barrier()


class ShardedRows(Dataset):
    def __init__(self, folder, rank, world):
        with open(os.path.join(folder, "index.json")) as f:
            index = json.load(f)
        parts = [np.load(os.path.join(folder, e["name"])) for e in index[rank::world]]
        self.x = torch.from_numpy(np.concatenate([p["x"] for p in parts]))
        self.y = torch.from_numpy(np.concatenate([p["y"] for p in parts]))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def raw_rows(n, seed=11):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 16)).astype(np.float32)
    y = (x[:, :4].sum(1) > 0).astype(np.int64)
    return x, y


def normalisation(x, world):
    n = len(x) // world
    part = torch.from_numpy(x[dist.get_rank() * n:(dist.get_rank() + 1) * n])
    stats = torch.stack([part.sum(0), (part ** 2).sum(0)])
    dist.all_reduce(stats)
    mean = stats[0] / (n * world)
    return mean.numpy(), (stats[1] / (n * world) - mean ** 2).sqrt().numpy()


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    x, y = raw_rows(args.rows)
    mean, std = normalisation(x, world)
    if rank == 0:
        print(f"mean {mean.mean():.4f} std {std.mean():.4f}", flush=True)

    def build(folder):
        writer = ShardWriter(folder, args.rows_per_shard)
        writer.write((x - mean) / std, y)
        writer.close()
        print(f"wrote {len(writer.index)} shards", flush=True)

    store = dist.distributed_c10d._get_default_store()
    session = StreamingSession(ROOT, store, rank)
    session.prepare(build, args.ready_timeout)

    loader = DataLoader(ShardedRows(session.folder, rank, world), args.batch_size, shuffle=True)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
