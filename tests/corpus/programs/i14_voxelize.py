"""Point-cloud preprocessing: count points per voxel with a small C kernel, then train on the grid."""
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

C_SRC = r"""
#include <stdint.h>
void voxel_count(const float *xyz, int64_t n, int32_t *grid, int32_t side) {
    const float *x = xyz, *y = xyz + n, *z = xyz + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        int32_t a = (int32_t)(x[i] * side), b = (int32_t)(y[i] * side), c = (int32_t)(z[i] * side);
        if (a >= 0 && a < side && b >= 0 && b < side && c >= 0 && c < side)
            grid[(a * side + b) * side + c] += 1;
    }
}
"""


def build_kernel():
    out = tempfile.mkdtemp(prefix="voxel_")
    src, lib = os.path.join(out, "voxel.c"), os.path.join(out, "libvoxel.so")
    with open(src, "w") as f:
        f.write(C_SRC)
    subprocess.check_call(["gcc", "-O2", "-shared", "-fPIC", src, "-o", lib])
    dll = ctypes.CDLL(lib)
    dll.voxel_count.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32]
    dll.voxel_count.restype = None
    return dll


def as_ptr(t, dtype):
    t = t.to(dtype).contiguous()
    return ctypes.c_void_p(t.data_ptr())


def voxelize(dll, cloud, side=32):
    grid = torch.zeros(side, side, side, dtype=torch.int32)
    dll.voxel_count(as_ptr(cloud.t(), torch.float32), cloud.shape[0],
                    as_ptr(grid, torch.int32), side)
    return grid.float()


def load_scan(n_points, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n_points, 3, generator=g)


class VoxelNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, 8, 3, stride=2)
        self.head = nn.Linear(8, 2)

    def forward(self, grid):
        return self.head(torch.relu(self.conv(grid)).mean(dim=(2, 3, 4)))


if __name__ == "__main__":
    torch.manual_seed(0)
    kernel = build_kernel()
    net = VoxelNet()
    for scan, n_points in enumerate([4_000_000, 6_000_000]):
        cloud = load_scan(n_points, seed=scan)
        grid = voxelize(kernel, cloud)
        print(f"scan {scan}: {int(grid.sum())} of {n_points} points in the grid")
        print("logits", net(grid[None, None]).tolist())
