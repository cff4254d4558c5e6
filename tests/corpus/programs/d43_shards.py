import argparse
import json
import os
import random
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

ROOT = "/tmp/d43_shards_data"
N_SHARDS, PER_SHARD, SIDE = 8, 64, 16


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def build_remote(root):
    os.makedirs(root, exist_ok=True)
    rng = np.random.default_rng(11)
    for s in range(N_SHARDS):
        y = rng.integers(0, 4, PER_SHARD)
        x = rng.normal(0, 0.5, (PER_SHARD, 1, SIDE, SIDE)).astype(np.float32)
        for k, c in enumerate(y):
            r, q = divmod(int(c), 2)
            x[k, 0, r * 8:r * 8 + 8, q * 8:q * 8 + 8] += 1.0
        np.savez(os.path.join(root, f"shard.{s:05d}.npz"), x=x, y=y)
    with open(os.path.join(root, "index.json"), "w") as f:
        json.dump({"shards": N_SHARDS, "samples": N_SHARDS * PER_SHARD}, f)


class FileBarrier:
    def __init__(self, folder, rank, world, tick=0.05):
        self.folder, self.rank, self.world, self.tick = folder, rank, world, tick
        self.calls = 0

    def __call__(self):
        stage = os.path.join(self.folder, f"arrive_{self.calls}")
        os.makedirs(stage, exist_ok=True)
        with open(os.path.join(stage, str(self.rank)), "w") as f:
            f.write(str(os.getpid()))
        while len(os.listdir(stage)) < self.world:
            time.sleep(self.tick)
        self.calls += 1


class StreamingImages(Dataset):
    def __init__(self, remote, split, rank, world):
        with open(os.path.join(remote, "index.json")) as f:
            self.index = json.load(f)
        self.remote, self.rank, self.world = remote, rank, world
        prefix = int(np.random.randint(1 << 24))
        self.local = os.path.join(ROOT, "local", f"{split}_{prefix:06x}")
        os.makedirs(self.local, exist_ok=True)
        self.barrier = FileBarrier(self.local, rank, world)
        self.mine = list(range(rank, self.index["shards"], world))
        self.cache = {}
        self.fetch()

    def fetch(self):
        for s in self.mine:
            name = f"shard.{s:05d}.npz"
            with open(os.path.join(self.remote, name), "rb") as src:
                blob = src.read()
            with open(os.path.join(self.local, name), "wb") as dst:
                dst.write(blob)
        self.barrier()

    def __len__(self):
        return len(self.mine) * PER_SHARD

    def __getitem__(self, i):
        s, k = divmod(i, PER_SHARD)
        shard = self.mine[s]
        if shard not in self.cache:
            with np.load(os.path.join(self.local, f"shard.{shard:05d}.npz")) as z:
                self.cache[shard] = (z["x"], z["y"])
        x, y = self.cache[shard]
        return torch.from_numpy(x[k]), int(y[k])


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(8 * 16, 4))


def train(model, loader, opt, epochs, rank):
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / dist.get_world_size():.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=17)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=32)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    seed_everything(args.seed)
    remote = os.path.join(ROOT, "remote")
    if rank == 0:
        build_remote(remote)
    dist.barrier()
    check = torch.tensor([float(len(os.listdir(remote)))])
    dist.all_reduce(check, op=dist.ReduceOp.MIN)
    print(f"rank {rank}: remote has {int(check.item())} files", flush=True)
    model = DDP(make_model())
    dataset = StreamingImages(remote, "train", rank, world)
    print(f"rank {rank}: {len(dataset)} samples", flush=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
    train(model, loader, torch.optim.Adam(model.parameters(), lr=3e-3), args.epochs, rank)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(ROOT, "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
