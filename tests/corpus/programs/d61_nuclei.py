"""Nuclei statistics for whole slide tiles: segment, label, measure, fit a grade model."""
import ctypes
import os
import subprocess

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/d61_nuclei_work"
LABEL_SRC = r"""
#include <stdint.h>
typedef struct { const uint8_t *mask; int32_t *lab; int h, w; long area; int top, bottom, left, right; } region_t;

static void grow(region_t *r, int y, int x, int id) {
    if (y < 0 || x < 0 || y >= r->h || x >= r->w) return;
    long p = (long)y * r->w + x;
    if (!r->mask[p] || r->lab[p]) return;
    r->lab[p] = id;
    r->area++;
    if (y < r->top) r->top = y;
    if (y > r->bottom) r->bottom = y;
    if (x < r->left) r->left = x;
    if (x > r->right) r->right = x;
    grow(r, y, x + 1, id);
    grow(r, y + 1, x, id);
    grow(r, y, x - 1, id);
    grow(r, y - 1, x, id);
}

int label_regions(const uint8_t *mask, int32_t *lab, int h, int w, int64_t *stats, int max_regions) {
    int n = 0;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            if (!mask[(long)y * w + x] || lab[(long)y * w + x] || n >= max_regions) continue;
            region_t r = {mask, lab, h, w, 0, h, 0, w, 0};
            grow(&r, y, x, ++n);
            int64_t *s = stats + 5 * (n - 1);
            s[0] = r.area; s[1] = r.top; s[2] = r.bottom; s[3] = r.left; s[4] = r.right;
        }
    return n;
}
"""


class RegionLabeller:
    def __init__(self, max_regions=4096):
        os.makedirs(WORK, exist_ok=True)
        src, lib = os.path.join(WORK, "regions.c"), os.path.join(WORK, "libregions.so")
        with open(src, "w") as f:
            f.write(LABEL_SRC)
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", src, "-o", lib], check=True)
        self.fn = ctypes.CDLL(lib).label_regions
        self.fn.restype = ctypes.c_int
        u8 = np.ctypeslib.ndpointer(np.uint8, flags="C_CONTIGUOUS")
        i32 = np.ctypeslib.ndpointer(np.int32, flags="C_CONTIGUOUS")
        i64 = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
        self.fn.argtypes = [u8, i32, ctypes.c_int, ctypes.c_int, i64, ctypes.c_int]
        self.max_regions = max_regions

    def __call__(self, mask):
        mask = np.ascontiguousarray(mask, dtype=np.uint8)
        labels = np.zeros(mask.shape, dtype=np.int32)
        stats = np.zeros((self.max_regions, 5), dtype=np.int64)
        n = self.fn(mask, labels, *mask.shape, stats, self.max_regions)
        return labels, stats[:n]


class SlideReader:
    """Tiles of one slide; the first and last tiles of a slide lie at the edge of the glass."""

    def __init__(self, n_tiles=10, size=1024, seed=3):
        self.n_tiles, self.size = n_tiles, size
        self.rng = np.random.default_rng(seed)

    def tile(self, i):
        img = self.rng.normal(0.85, 0.02, (self.size, self.size)).astype(np.float32)
        if i == self.n_tiles - 1:
            return np.full_like(img, 0.93)
        yy, xx = np.mgrid[: self.size, : self.size]
        for _ in range(25):
            cy, cx = self.rng.integers(30, self.size - 30, 2)
            rad = self.rng.integers(8, 22)
            img[(yy - cy) ** 2 + (xx - cx) ** 2 < rad * rad] = 0.3 + 0.02 * self.rng.random()
        return img


class NucleusSegmenter(nn.Module):
    def __init__(self):
        super().__init__()
        k = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0])
        k = (k[:, None] * k[None, :]) / 256
        self.register_buffer("kernel", k[None, None])

    @torch.no_grad()
    def forward(self, tile):
        x = F.conv2d(F.pad(tile[None, None], (2, 2, 2, 2), mode="replicate"), self.kernel)[0, 0]
        lo, hi = x.min(), x.max()
        return x <= lo + 0.5 * (hi - lo) + 1e-6


def describe(stats):
    area = torch.from_numpy(stats[:, 0]).float()
    height = torch.from_numpy(stats[:, 2] - stats[:, 1] + 1).float()
    width = torch.from_numpy(stats[:, 4] - stats[:, 3] + 1).float()
    return torch.stack([area.log(), height / width, area / (height * width)], dim=1)


def main():
    torch.manual_seed(0)
    reader, segment, label = SlideReader(), NucleusSegmenter(), RegionLabeller()
    rows = []
    for i in range(reader.n_tiles):
        mask = segment(torch.from_numpy(reader.tile(i))).numpy()
        _, stats = label(mask)
        stats = stats[stats[:, 0] > 30]
        rows.append(describe(stats))
        print(f"tile {i}: {len(stats)} nuclei, median area {np.median(stats[:, 0]):.0f}", flush=True)
    feats = torch.cat(rows)
    grade = (feats[:, :1] > feats[:, :1].median()).float()
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(100):
        loss = F.binary_cross_entropy_with_logits(model(feats), grade)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"{len(feats)} nuclei, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
