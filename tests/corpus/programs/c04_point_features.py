"""Point cloud classifier whose neighbourhood features come from a small C library."""
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SOURCE = r"""
#include <math.h>
void local_density(const float *pts, int n, float radius, float *out) {
    for (int i = 0; i < n; i++) {
        int count = 0;
        for (int j = 0; j < n; j++) {
            float dx = pts[3 * i] - pts[3 * j];
            float dy = pts[3 * i + 1] - pts[3 * j + 1];
            float dz = pts[3 * i + 2] - pts[3 * j + 2];
            if (dx * dx + dy * dy + dz * dz < radius * radius) count++;
        }
        out[i] = (float)count / (float)n;
    }
}
"""


def build_library():
    folder = tempfile.mkdtemp(prefix="density_")
    src, lib = os.path.join(folder, "density.c"), os.path.join(folder, "libdensity.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", lib, src, "-lm"])
    return ctypes.CDLL(lib)


_lib = build_library()


def local_density(points, radius=0.2):
    points = points.contiguous()
    out = torch.empty(points.size(0))
    _lib.local_density(points.data_ptr(), points.size(0), ctypes.c_float(radius), out.data_ptr())
    return out


class Shapes(Dataset):
    def __init__(self, n_shapes=64, n_points=256):
        g = torch.Generator().manual_seed(3)
        self.points = torch.rand(n_shapes, n_points, 3, generator=g)
        self.labels = torch.randint(0, 4, (n_shapes,), generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        pts = self.points[idx]
        return torch.cat([pts, local_density(pts).unsqueeze(1)], dim=1), self.labels[idx]


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 128))
        self.cls = nn.Linear(128, 4)

    def forward(self, x):
        return self.cls(self.mlp(x).amax(dim=1))


def main():
    loader = DataLoader(Shapes(), batch_size=8, shuffle=True)
    model = PointNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
