"""Cut an aerial scan in tiles, thin each tile out on a grid, train a small per-point classifier."""
import ctypes
import os
import subprocess

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/s82_tiles_build"
SOURCE = r"""
#include <stdlib.h>
#include <float.h>
#include <math.h>

int grid_subsample(const float *pts, const int *lab, int n, float cell, float *out, int *out_lab) {
    float lo[3] = {FLT_MAX, FLT_MAX, FLT_MAX}, hi[3] = {-FLT_MAX, -FLT_MAX, -FLT_MAX};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            lo[k] = fminf(lo[k], pts[3 * i + k]);
            hi[k] = fmaxf(hi[k], pts[3 * i + k]);
        }
    size_t dim[3];
    for (int k = 0; k < 3; k++)
        dim[k] = (size_t)((int)floorf((hi[k] - lo[k]) / cell) + 1);
    size_t cells = dim[0] * dim[1] * dim[2];
    int *slot = malloc(cells * sizeof(int));
    for (size_t c = 0; c < cells; c++)
        slot[c] = -1;
    int m = 0;
    for (int i = 0; i < n; i++) {
        size_t c = 0;
        for (int k = 0; k < 3; k++)
            c = c * dim[k] + (size_t)floorf((pts[3 * i + k] - lo[k]) / cell);
        if (slot[c] < 0) {
            slot[c] = m;
            for (int k = 0; k < 3; k++)
                out[3 * m + k] = pts[3 * i + k];
            out_lab[m++] = lab[i];
        }
    }
    free(slot);
    return m;
}
"""


class Subsampler:
    def __init__(self, cell):
        os.makedirs(WORK, exist_ok=True)
        src, lib = os.path.join(WORK, "grid.c"), os.path.join(WORK, "libgrid.so")
        with open(src, "w") as f:
            f.write(SOURCE)
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", src, "-o", lib, "-lm"], check=True)
        fptr = np.ctypeslib.ndpointer(np.float32, flags="C")
        iptr = np.ctypeslib.ndpointer(np.int32, flags="C")
        self.fn = ctypes.CDLL(lib).grid_subsample
        self.fn.argtypes = [fptr, iptr, ctypes.c_int, ctypes.c_float, fptr, iptr]
        self.cell = cell

    def __call__(self, points, labels):
        out, out_labels = np.empty_like(points), np.empty_like(labels)
        m = self.fn(points, labels, len(points), self.cell, out, out_labels)
        return out[:m], out_labels[:m]


class Scan:
    """Synthetic flight line: ground (2), vegetation (4), roofs (6), a pond with few returns (9)."""

    def __init__(self, size=120.0, n=240000, seed=3):
        rng = np.random.default_rng(seed)
        xy = rng.uniform(0, size, (n, 2))
        z = 0.02 * xy[:, 0] + rng.normal(0, 0.05, n)
        labels = np.full(n, 2, np.int32)
        veg = rng.random(n) < 0.25
        z[veg] += rng.uniform(0.5, 9, veg.sum())
        labels[veg] = 4
        roof = (np.mod(xy[:, 0], 30) < 9) & (np.mod(xy[:, 1], 24) < 12)
        z[roof] += 6
        labels[roof] = 6
        pond = (xy[:, 0] > 78) & (xy[:, 1] > 58)
        z[pond] = 1.2
        labels[pond] = 9
        keep = ~pond | (rng.random(n) < 0.03)
        self.points = np.column_stack([xy, z])[keep].astype(np.float32)
        self.labels = labels[keep]
        self.size = size

    def tiles(self, edge=20.0):
        steps = int(self.size // edge)
        for ix in range(steps):
            for iy in range(steps):
                lo = np.array([ix, iy]) * edge
                inside = ((self.points[:, :2] >= lo) & (self.points[:, :2] < lo + edge)).all(1)
                yield (ix, iy), self.points[inside], self.labels[inside]


def prepare(scan, thin):
    classes = {2: 0, 4: 1, 6: 2}
    tiles = []
    for (ix, iy), points, labels in scan.tiles():
        known = np.isin(labels, list(classes))
        points, labels = np.ascontiguousarray(points[known]), np.ascontiguousarray(labels[known])
        points, labels = thin(points, labels)
        target = np.vectorize(classes.get, otypes=[np.int64])(labels)
        tiles.append((torch.from_numpy(points - points.mean(0)), torch.from_numpy(target)))
        if iy == 0:
            print(f"column {ix}: first tile has {len(points)} points after thinning", flush=True)
    return tiles


def train(tiles, epochs=3):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = 0.0
        for points, target in tiles:
            loss = F.cross_entropy(net(points), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(tiles):.4f}", flush=True)


def main():
    scan = Scan()
    print(f"scan has {len(scan.points)} points", flush=True)
    tiles = prepare(scan, Subsampler(cell=0.5))
    print(f"{len(tiles)} tiles prepared", flush=True)
    train(tiles)


if __name__ == "__main__":
    main()
