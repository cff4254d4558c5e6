"""Two processes train on per-process sensor logs with one shared normaliser.

The first process fits the normaliser and caches it next to the data, the other
one reads the cached file.
"""
import os
import shutil
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORK = "/tmp/e64_feature_cache"
FEATURES = 24


def say(rank, *what):
    print(f"[rank {rank}]", *what, flush=True)


def write_logs():
    shutil.rmtree(WORK, ignore_errors=True)
    rng = np.random.default_rng(7)
    for rank, parts in enumerate((1, 8)):
        folder = os.path.join(WORK, f"site{rank}")
        os.makedirs(folder)
        for part in range(parts):
            x = rng.normal(loc=3.0, scale=2.0, size=(2500, FEATURES))
            y = (x[:, :4].sum(1) > 12.0).astype(int)
            rows = np.column_stack([x, y])
            np.savetxt(os.path.join(folder, f"log{part}.csv"), rows, delimiter=",", fmt="%.5f")


def read_logs(rank):
    folder = os.path.join(WORK, f"site{rank}")
    tables = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as f:
            tables.append([[float(v) for v in line.split(",")] for line in f])
        say(rank, "read", name)
    data = torch.tensor([row for table in tables for row in table])
    return data[:, :-1], data[:, -1].long()


class CachedNormaliser:
    """Mean and deviation of the first process' data, the same everywhere."""

    def __init__(self, path, rank):
        self.path = path
        self.rank = rank

    def fit(self, x):
        return {"mean": x.mean(0), "std": x.std(0).clamp_min(1e-4), "median": x.median(0).values}

    def load(self, x):
        if not os.path.isfile(self.path):
            if self.rank == 0:
                tmp = self.path + ".tmp"
                torch.save(self.fit(x), tmp)
                os.replace(tmp, self.path)
                say(self.rank, "wrote", os.path.basename(self.path))
            dist.barrier()
        stats = torch.load(self.path, weights_only=True)
        say(self.rank, "normaliser ready")
        return lambda t: (t - stats["mean"]) / stats["std"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x):
        return self.layers(x)


def train(rank, x, y, steps=60):
    model = DistributedDataParallel(Net())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, steps + 1):
        idx = torch.randint(len(x), (64,), generator=gen)
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            say(rank, f"step {step} loss {loss.item():.4f}")
    return model


def report(rank, model, x, y):
    with torch.no_grad():
        hits = torch.tensor([(model.module(x).argmax(1) == y).sum(), len(y)])
    dist.all_reduce(hits)
    if rank == 0:
        say(rank, f"accuracy {hits[0].item() / hits[1].item():.4f}")


def worker(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    sites = torch.tensor([1])
    dist.all_reduce(sites)
    say(rank, f"{sites.item()} sites")

    x, y = read_logs(rank)
    normalise = CachedNormaliser(os.path.join(WORK, "normaliser.pt"), rank).load(x)
    x = normalise(x)
    model = train(rank, x, y)
    report(rank, model, x, y)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    write_logs()
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
