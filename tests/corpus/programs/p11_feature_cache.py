"""Precompute image features into one file on the scratch disk, then train a linear probe on them."""
import os
import sys

import torch
import torch.nn as nn


class FeatureCache:
    """rows x dim float32 on disk; rows are written in any order and read back as a tensor."""

    def __init__(self, path, rows, dim):
        self.path = path
        self.data = torch.from_file(path, shared=True, size=rows * dim, dtype=torch.float32).view(rows, dim)

    def write(self, start, block):
        self.data[start:start + len(block)] = block

    def read(self, index):
        return self.data[index]


class Backbone(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(8),
                                 nn.Flatten(), nn.Linear(16 * 64, dim))

    @torch.no_grad()
    def forward(self, images):
        return self.net(images)


def extract(backbone, cache, rows, batch=64):
    g = torch.Generator().manual_seed(0)
    for start in range(0, rows, batch):
        images = torch.rand(min(batch, rows - start), 3, 32, 32, generator=g)
        cache.write(start, backbone(images))
        if start % (batch * 16) == 0:
            print(f"{start}/{rows} rows", flush=True)


def probe(cache, rows, dim, steps=20):
    head = nn.Linear(dim, 10)
    opt = torch.optim.SGD(head.parameters(), lr=0.01)
    for _ in range(steps):
        idx = torch.randint(0, rows, (128,))
        loss = nn.functional.cross_entropy(head(cache.read(idx)), idx % 10)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("probe loss", loss.item(), flush=True)


def main(scratch, rows=8192, dim=1024):
    cache = FeatureCache(os.path.join(scratch, "features.f32"), rows, dim)
    print(f"cache file of {os.path.getsize(cache.path) >> 20} MiB in {scratch}", flush=True)
    extract(Backbone(dim), cache, rows)
    probe(cache, rows, dim)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "/scratch")
