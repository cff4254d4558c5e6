"""Click-through ranking on row-sharded part files, data parallel on CPU.

    torchrun --standalone --nproc-per-node 3 u172_clicks.py --parts 12
"""
import argparse
import glob
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def fetch_parts(folder, n_parts, rank, world_size):
    """Downloads the part files, every worker from another position of the
    list so that the bucket is not asked for one object by all at a time."""
    start = rank * n_parts // world_size
    for k in range(n_parts):
        part = (start + k) % n_parts
        g = np.random.default_rng(1000 + part)
        rows = int(g.integers(180, 420))
        table = np.zeros(rows, dtype=[("user", "i4"), ("item", "i4"), ("click", "f4")])
        table["user"] = g.integers(0, 500, rows)
        table["item"] = g.integers(0, 300, rows)
        table["click"] = (g.random(rows) < 0.3)
        np.save(os.path.join(folder, f"part-{part}.npy"), table)


class PartReader:
    """Presents a list of part files as one row space, cut evenly over workers."""

    def __init__(self, pattern, batch_size, rank, world_size):
        self.batch_size = batch_size
        self.rank, self.world_size = rank, world_size
        self.input_files = glob.glob(pattern)
        self.metas = {}
        self._num_rows = []
        self._collect_metas()

    def _collect_metas(self):
        own = {}
        for path in self.input_files[self.rank::self.world_size]:
            header = np.load(path, mmap_mode="r")
            own[os.path.basename(path)] = {"num_rows": len(header), "columns": header.dtype.names}
        gathered = [None] * self.world_size
        dist.all_gather_object(gathered, own)
        for metas in gathered:
            self.metas.update(metas)
        for path in self.input_files:
            self._num_rows.append(self.metas[os.path.basename(path)]["num_rows"])

    @property
    def total_rows(self):
        return sum(self._num_rows)

    def to_batches(self):
        per_worker = self.total_rows // self.world_size
        begin, end = self.rank * per_worker, (self.rank + 1) * per_worker
        offset, pending = 0, []
        for path, rows in zip(self.input_files, self._num_rows):
            lo, hi = max(begin - offset, 0), min(end - offset, rows)
            if lo < hi:
                pending.append(np.load(path)[lo:hi])
            offset += rows
        table = np.concatenate(pending)
        for i in range(0, per_worker - self.batch_size + 1, self.batch_size):
            yield table[i:i + self.batch_size]


class TwoTower(nn.Module):
    def __init__(self, users=500, items=300, dim=16):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.head = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item):
        return self.head(torch.cat([self.user(user), self.item(item)], 1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--parts", type=int, default=12)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--scratch", default="/dev/shm")
    args = ap.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    model = DDP(TwoTower())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss_fn = nn.BCEWithLogitsLoss()

    folder = tempfile.mkdtemp(prefix=f"clicks_w{rank}_", dir=args.scratch)
    try:
        fetch_parts(folder, args.parts, rank, world_size)
        print(f"[worker {rank}] {args.parts} parts in {folder}", flush=True)
        reader = PartReader(os.path.join(folder, "part-*.npy"), args.batch_size, rank, world_size)
        for epoch in range(args.epochs):
            total, steps = 0.0, 0
            for rows in reader.to_batches():
                opt.zero_grad()
                out = model(torch.from_numpy(rows["user"].astype("i8")),
                            torch.from_numpy(rows["item"].astype("i8")))
                loss = loss_fn(out, torch.from_numpy(rows["click"].copy()))
                loss.backward()
                opt.step()
                total, steps = total + loss.item(), steps + 1
            print(f"[worker {rank}] epoch {epoch}: {steps} steps, loss {total / steps:.4f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
