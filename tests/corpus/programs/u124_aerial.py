"""Aerial object counting: a small C sampler draws crops from the image lists, the network is trained in torch."""
import argparse
import ctypes
import os
import subprocess

import numpy as np
import torch
from torch import nn

SAMPLER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char **paths; int n; unsigned seed; int w, h; } list_t;

list_t *list_open(const char *file, int w, int h, unsigned seed) {
  FILE *fp = fopen(file, "r");
  if (!fp) return NULL;
  list_t *l = calloc(1, sizeof(list_t));
  l->w = w; l->h = h; l->seed = seed;
  char line[1024];
  while (fgets(line, sizeof line, fp)) {
    line[strcspn(line, "\r\n")] = 0;
    FILE *img = fopen(line, "rb");
    if (!img) continue;
    fclose(img);
    l->paths = realloc(l->paths, (l->n + 1) * sizeof(char *));
    l->paths[l->n++] = strdup(line);
  }
  fclose(fp);
  return l;
}

int load_random(list_t *l, int batch, float *x, float *y) {
  size_t pixels = (size_t)l->w * l->h;
  unsigned char *raw = malloc(pixels + 1);
  for (int b = 0; b < batch; ++b) {
    int index = rand_r(&l->seed) % l->n;
    FILE *img = fopen(l->paths[index], "rb");
    size_t got = fread(raw, 1, pixels + 1, img);
    fclose(img);
    if (got != pixels + 1) { free(raw); return -1; }
    for (size_t k = 0; k < pixels; ++k) x[b * pixels + k] = raw[k] / 255.0f;
    y[b] = raw[pixels];
  }
  free(raw);
  return batch;
}
"""


def build_sampler(folder):
    source, lib = os.path.join(folder, "sampler.c"), os.path.join(folder, "libsampler.so")
    with open(source, "w") as handle:
        handle.write(SAMPLER)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", lib])
    sampler = ctypes.CDLL(lib)
    sampler.list_open.restype = ctypes.c_void_p
    sampler.list_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint]
    sampler.load_random.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return sampler


class ImageList:
    def __init__(self, sampler, path, size, seed):
        self.sampler, self.size = sampler, size
        self.handle = sampler.list_open(path.encode(), size, size, seed)
        if not self.handle:
            raise FileNotFoundError(path)

    def batch(self, n):
        x = np.empty((n, 1, self.size, self.size), dtype=np.float32)
        y = np.empty(n, dtype=np.float32)
        if self.sampler.load_random(self.handle, n, x.ctypes.data, y.ctypes.data) != n:
            raise IOError("short image file")
        return torch.from_numpy(x), torch.from_numpy(y)


def make_tiles(root, split, count, size, rng):
    """Grey tiles with bright vehicles; the last byte of a file is the number of vehicles. Writes <split>.txt too."""
    folder = os.path.join(root, split)
    os.makedirs(folder, exist_ok=True)
    names = []
    for i in range(count):
        tile = rng.integers(20, 70, (size, size), dtype=np.uint8)
        vehicles = int(rng.integers(0, 8))
        for _ in range(vehicles):
            r, c = rng.integers(0, size - 4, 2)
            tile[r:r + 3, c:c + 4] = 230
        names.append(os.path.join(split, f"tile_{i:04d}.raw"))
        with open(os.path.join(root, names[-1]), "wb") as handle:
            handle.write(tile.tobytes() + bytes([vehicles]))
    prefix = root if split == "train" else "data"
    with open(os.path.join(root, f"{split}.txt"), "w") as handle:
        handle.writelines(os.path.join(prefix, name) + "\n" for name in names)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", default="dota")
    ap.add_argument("--size", type=int, default=48)
    ap.add_argument("--iters", type=int, default=120)
    args = ap.parse_args()
    rng = np.random.default_rng(7)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    for split, count in (("train", 200), ("val", 60)):
        make_tiles(args.root, split, count, args.size, rng)
    sampler = build_sampler(args.root)
    train, val = (ImageList(sampler, os.path.join(args.root, f"{s}.txt"), args.size, 11) for s in ("train", "val"))
    net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 1))
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    for it in range(1, args.iters + 1):
        x, y = train.batch(16)
        loss = nn.functional.smooth_l1_loss(net(x).squeeze(1), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if it % 40 == 0:
            print(f"{it}: train loss {loss.item():.3f}", flush=True)
    with torch.no_grad():
        x, y = val.batch(32)
        print(f"validation error {(net(x).squeeze(1) - y).abs().mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
