"""Region features of tissue masks: label the connected regions of every slide,
compute shape statistics per region and fit a small classifier on them."""
import ctypes
import os
import subprocess
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

WORK = "/tmp/m61_regions_build"

C_SOURCE = r"""
#include <stdint.h>

typedef struct { const uint8_t *mask; int32_t *labels; int h, w; } grid_t;

static int32_t grow(const grid_t *g, int y, int x, int32_t label)
{
    int32_t area = 1;
    if (y < 0 || x < 0 || y >= g->h || x >= g->w) return 0;
    int64_t k = (int64_t)y * g->w + x;
    if (!g->mask[k] || g->labels[k]) return 0;
    g->labels[k] = label;
    area += grow(g, y, x + 1, label);
    area += grow(g, y + 1, x, label);
    area += grow(g, y, x - 1, label);
    area += grow(g, y - 1, x, label);
    return area;
}

int label_regions(const uint8_t *mask, int32_t *labels, int h, int w, int min_area)
{
    grid_t g = { mask, labels, h, w };
    int32_t next = 0;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            if (mask[(int64_t)y * w + x] && !labels[(int64_t)y * w + x])
                if (grow(&g, y, x, next + 1) >= min_area) next++;
    return next;
}
"""


@dataclass
class Slide:
    name: str
    size: int
    cells: int
    radius: tuple
    stain: float


SLIDES = [
    Slide("biopsy_01", 256, 24, (5, 14), 0.20),
    Slide("biopsy_02", 320, 30, (5, 16), 0.35),
    Slide("biopsy_03", 320, 28, (6, 18), 0.30),
    Slide("biopsy_04", 384, 34, (6, 18), 0.45),
    Slide("resection_01", 2048, 160, (60, 260), 0.40),
    Slide("resection_02", 2048, 150, (60, 240), 0.50),
]


def build_library():
    os.makedirs(WORK, exist_ok=True)
    src, lib = os.path.join(WORK, "regions.c"), os.path.join(WORK, "libregions.so")
    with open(src, "w") as f:
        f.write(C_SOURCE)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", src, "-o", lib], check=True)
    handle = ctypes.CDLL(lib)
    handle.label_regions.restype = ctypes.c_int
    handle.label_regions.argtypes = [ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int] * 3
    return handle


def render_mask(slide, rng):
    yy, xx = np.mgrid[0:slide.size, 0:slide.size].astype(np.float32)
    mask = np.zeros((slide.size, slide.size), dtype=np.uint8)
    for _ in range(slide.cells):
        cy, cx = rng.uniform(0, slide.size, 2)
        r = rng.uniform(*slide.radius)
        mask |= ((yy - cy) ** 2 + (xx - cx) ** 2 < r * r).astype(np.uint8)
    return np.ascontiguousarray(mask)


def label(lib, mask, min_area=20):
    labels = np.zeros(mask.shape, dtype=np.int32)
    n = lib.label_regions(mask.ctypes.data, labels.ctypes.data, *mask.shape, min_area)
    return labels, n


def region_features(labels, n, stain):
    feats = []
    for k in range(1, n + 1):
        ys, xs = np.nonzero(labels == k)
        if len(ys) < 20:
            continue
        h, w = np.ptp(ys) + 1, np.ptp(xs) + 1
        feats.append([np.log(len(ys)), h / w, len(ys) / (h * w), stain])
    return torch.tensor(np.array(feats, dtype=np.float32).reshape(-1, 4))


def fit(x, y, epochs=60):
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(7)
    lib = build_library()
    feats, targets = [], []
    for slide in SLIDES:
        mask = render_mask(slide, rng)
        labels, n = label(lib, mask)
        f = region_features(labels, n, slide.stain)
        feats.append(f)
        targets.append((f[:, 2] > 0.7).float())
        loss = fit(torch.cat(feats), torch.cat(targets))
        print(f"{slide.name}: coverage {mask.mean():.2f}, {len(f)} regions, loss {loss:.4f}", flush=True)
    torch.save(torch.cat(feats), os.path.join(WORK, "features.pt"))
    print("done", flush=True)


if __name__ == "__main__":
    main()
