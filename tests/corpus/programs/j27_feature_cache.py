"""Encode a data set once with a frozen network and keep the features on the scratch disk for the probes."""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
from numpy.lib.format import open_memmap


class FrozenEncoder(nn.Module):
    def __init__(self, out_dim=768):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, out_dim))
        self.requires_grad_(False).eval()

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


class FeatureCache:
    def __init__(self, folder, n, views, dim):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"features_{n}x{views}x{dim}.npy")
        self.array = open_memmap(self.path, mode="w+", dtype=np.float32, shape=(n, views, dim))
        self.tensor = torch.from_numpy(self.array)
        print(f"cache {self.path}: {self.array.nbytes / 2**20:.0f} MiB", flush=True)

    def put(self, start, feats):
        self.tensor[start:start + len(feats)].copy_(feats)

    def finish(self):
        self.array.flush()


def augment(x, gen):
    return x + 0.05 * torch.randn(x.shape, generator=gen)


@torch.no_grad()
def encode(cache, encoder, n, views, batch=512):
    gen = torch.Generator().manual_seed(0)
    start_time = time.time()
    for start in range(0, n, batch):
        x = torch.randn(min(batch, n - start), 128, generator=gen)
        feats = torch.stack([encoder(augment(x, gen)) for _ in range(views)], 1)
        cache.put(start, feats)
        if start % (batch * 4) == 0:
            print(f"{start:6d}/{n}  {time.time() - start_time:.1f}s", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scratch", default="scratch")
    ap.add_argument("--samples", type=int, default=20000)
    ap.add_argument("--views", type=int, default=2)
    args = ap.parse_args()
    encoder = FrozenEncoder()
    cache = FeatureCache(args.scratch, args.samples, args.views, 768)
    encode(cache, encoder, args.samples, args.views)
    cache.finish()
    probe = nn.Linear(768, 10)
    feats = torch.from_numpy(np.load(cache.path, mmap_mode="c"))
    print("probe logits", tuple(probe(feats[:64].mean(1)).shape), flush=True)


if __name__ == "__main__":
    main()
