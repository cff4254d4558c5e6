"""Normalisation statistics and a linear probe over a set of feature shards on disk."""
import json
import os
import shutil

import numpy as np
import torch
import torch.nn as nn

ROOT = "/tmp/o03_shards"
DIM = 256
SIZES = [1500, 2200, 1800, 60000]


def write_shards(root, sizes, seed=0):
    rng = np.random.default_rng(seed)
    manifest = []
    for i, rows in enumerate(sizes):
        path = os.path.join(root, f"part-{i:03d}.f16")
        data = rng.normal(0.3 * (i + 1), 1.0, size=(rows, DIM)).astype(np.float16)
        data.tofile(path)
        manifest.append({"path": path, "rows": rows, "scale": 0.5})
    with open(os.path.join(root, "manifest.json"), "w") as f:
        json.dump(manifest, f)
    return manifest


class ShardReader:
    """Reads half precision shards and hands them on as float32 tensors without another copy."""

    def __init__(self, manifest):
        self.manifest = manifest
        self.bytes_read = 0

    def __len__(self):
        return len(self.manifest)

    def decode(self, entry):
        raw = np.fromfile(entry["path"], dtype=np.float16)
        self.bytes_read += raw.nbytes
        values = raw.astype(np.float32)
        values *= entry["scale"]
        return values

    def tensor(self, i):
        entry = self.manifest[i]
        values = self.decode(entry)
        return torch._from_blob(values.ctypes.data, (entry["rows"], DIM), dtype=torch.float32)


class RunningMoments:
    def __init__(self, dim):
        self.n = 0
        self.mean = torch.zeros(dim, dtype=torch.float64)
        self.m2 = torch.zeros(dim, dtype=torch.float64)

    def update(self, block):
        n = block.size(0)
        mean = block.mean(0).double()
        var = block.var(0, unbiased=False).double()
        delta = mean - self.mean
        total = self.n + n
        self.m2 += var * n + delta ** 2 * self.n * n / total
        self.mean += delta * n / total
        self.n = total

    @property
    def std(self):
        return (self.m2 / max(self.n, 1)).sqrt()


class Probe(nn.Module):
    def __init__(self, mean, std, classes):
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", std.float().clamp_min(1e-6))
        self.head = nn.Linear(DIM, classes)

    def forward(self, x):
        return self.head((x - self.mean) / self.std)


def fit_probe(probe, reader, steps=30):
    opt = torch.optim.SGD(probe.parameters(), 0.05)
    blocks = [reader.tensor(i)[:1000].clone() for i in range(len(reader))]
    x = torch.cat(blocks)
    y = torch.cat([torch.full((b.size(0),), i) for i, b in enumerate(blocks)])
    for _ in range(steps):
        loss = nn.functional.cross_entropy(probe(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    manifest = write_shards(ROOT, SIZES)
    reader = ShardReader(manifest)
    moments = RunningMoments(DIM)
    for i in range(len(reader)):
        block = reader.tensor(i)
        moments.update(block)
        print(f"shard {i}: {tuple(block.shape)} rows so far {moments.n}", flush=True)
    print(f"mean {moments.mean.mean():.4f} std {moments.std.mean():.4f} "
          f"({reader.bytes_read / 1e6:.0f} MB read)", flush=True)

    probe = Probe(moments.mean, moments.std, len(reader))
    print(f"probe loss {fit_probe(probe, reader):.3f}", flush=True)
    torch.save(probe.state_dict(), os.path.join(ROOT, "probe.pt"))


if __name__ == "__main__":
    main()
