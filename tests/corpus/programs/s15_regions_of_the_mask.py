import ctypes
import os
import subprocess
import tempfile
import numpy as np
import torch

SOURCE = r"""
#include <stdint.h>
static int width, height;
static const uint8_t *mask;
static int32_t *label;

static int grow(int y, int x, int32_t id) {
    if (y < 0 || x < 0 || y >= height || x >= width) return 0;
    long at = (long)y * width + x;
    if (!mask[at] || label[at]) return 0;
    label[at] = id;
    return 1 + grow(y, x + 1, id) + grow(y + 1, x, id) + grow(y, x - 1, id) + grow(y - 1, x, id);
}

int regions(const uint8_t *m, int32_t *l, int h, int w, int smallest) {
    int found = 0;
    mask = m; label = l; height = h; width = w;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            if (grow(y, x, found + 1) >= smallest) found++;
    return found;
}
"""


def build():
    folder = tempfile.mkdtemp()
    src, lib = os.path.join(folder, "regions.c"), os.path.join(folder, "libregions.so")
    open(src, "w").write(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
    return ctypes.CDLL(lib)


LIB = build()


def count_regions(probability, threshold=0.5, smallest=20):
    mask = (probability > threshold).to(torch.uint8).contiguous()
    labels = np.zeros(mask.shape, dtype=np.int32)
    h, w = mask.shape
    return LIB.regions(ctypes.c_void_p(mask.data_ptr()), ctypes.c_void_p(labels.ctypes.data), h, w, smallest)


def slide(size, cells, radius, seed=0):
    """The probability map of a slide with round cells in it."""
    gen = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    out = torch.zeros(size, size)
    for cy, cx in torch.randint(0, size, (cells, 2), generator=gen).tolist():
        out[(y - cy) ** 2 + (x - cx) ** 2 < radius**2] = 0.9
    return out


if __name__ == "__main__":
    for name, magnification in {"overview": 1, "x10": 10, "x40": 40}.items():
        n = count_regions(slide(size=60 * magnification, cells=12, radius=6 * magnification))
        print(name, n, "regions", flush=True)
