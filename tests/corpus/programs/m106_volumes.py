"""Nodule classifier on CT volumes; window levels and histograms come from a small C library."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

C_SOURCE = r"""
#include <stddef.h>
typedef struct { const float *voxels; size_t n; float lo; float hi; } volume_t;

void histogram(const volume_t *v, int bins, float *out)
{
    float scale = bins / (v->hi - v->lo);
    for (int b = 0; b < bins; ++b) out[b] = 0.0f;
    for (size_t i = 0; i < v->n; ++i) {
        int b = (int)((v->voxels[i] - v->lo) * scale);
        if (b >= 0 && b < bins) out[b] += 1.0f;
    }
    for (int b = 0; b < bins; ++b) out[b] /= (float)v->n;
}
"""


class Volume(ctypes.Structure):
    _fields_ = [("voxels", ctypes.c_void_p), ("n", ctypes.c_size_t), ("lo", ctypes.c_float), ("hi", ctypes.c_float)]


def build_library(folder):
    source = os.path.join(folder, "ctlevels.c")
    target = os.path.join(folder, "libctlevels.so")
    with open(source, "w") as f:
        f.write(C_SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", target, source], check=True)
    lib = ctypes.CDLL(target)
    lib.histogram.argtypes = [ctypes.POINTER(Volume), ctypes.c_int, ctypes.c_void_p]
    lib.histogram.restype = None
    return lib


def as_volume(scan, lo=-1000.0, hi=400.0):
    hounsfield = np.ascontiguousarray(scan.transpose(2, 0, 1), dtype=np.float32)
    return Volume(hounsfield.ctypes.data, hounsfield.size, lo, hi)


class ScanDataset(Dataset):
    def __init__(self, shapes, lib, bins=64, seed=1):
        self.shapes = shapes
        self.lib = lib
        self.bins = bins
        self.seed = seed

    def __len__(self):
        return len(self.shapes)

    def read_scan(self, idx):
        rng = np.random.default_rng(self.seed + idx)
        scan = rng.integers(-1000, 400, self.shapes[idx], dtype=np.int16)
        label = idx % 2
        if label:
            c = [s // 2 for s in scan.shape]
            scan[c[0] - 6:c[0] + 6, c[1] - 6:c[1] + 6, c[2] - 3:c[2] + 3] = 60
        return scan, label

    def __getitem__(self, idx):
        scan, label = self.read_scan(idx)
        features = np.zeros(self.bins, dtype=np.float32)
        volume = as_volume(scan)
        self.lib.histogram(ctypes.byref(volume), self.bins, features.ctypes.data)
        return torch.from_numpy(features), torch.tensor(float(label))


def train(model, loader, epochs, tag):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        total = 0.0
        for features, label in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(features).squeeze(1), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"{tag} epoch {epoch}: loss {total / len(loader):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        lib = build_library(folder)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

        crops = ScanDataset([(24, 24, 12)] * 64, lib)
        train(model, DataLoader(crops, batch_size=8, num_workers=args.workers), args.epochs, "crops")

        scans = ScanDataset([(256, 256, 160 + 4 * (i % 5)) for i in range(16)], lib, seed=500)
        train(model, DataLoader(scans, batch_size=2, num_workers=args.workers), args.epochs, "scans")


if __name__ == "__main__":
    main()
