"""Nearest-neighbour retrieval over a feature bank with a small C kernel."""
import ctypes
import os
import subprocess
import tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <stdint.h>
void nearest(const float *bank, int64_t n, int64_t dim, const float *q, int64_t nq, int64_t *out) {
    for (int64_t k = 0; k < nq; k++) {
        float best = 1e30f;
        for (int64_t i = 0; i < n; i++) {
            float d = 0.f;
            for (int64_t j = 0; j < dim; j++) {
                float t = bank[i * dim + j] - q[k * dim + j];
                d += t * t;
            }
            if (d < best) { best = d; out[k] = i; }
        }
    }
}
"""


def build_kernel():
    folder = tempfile.mkdtemp(prefix="knn_")
    src, so = os.path.join(folder, "knn.c"), os.path.join(folder, "libknn.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.check_call(["gcc", "-O2", "-shared", "-fPIC", src, "-o", so])
    lib = ctypes.CDLL(so)
    lib.nearest.restype = None
    lib.nearest.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                            ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    return lib


class FeatureBank:
    """Features arrive channel-first from the extractor; the kernel wants one row per item."""

    def __init__(self, lib, dim):
        self.lib, self.dim = lib, dim
        self.size = 0

    def load(self, feats):
        self.feats = feats
        self.size = feats.size(1)
        self.rows = feats.t().contiguous().data_ptr()

    def query(self, q):
        q = q.float().contiguous()
        out = torch.zeros(q.size(0), dtype=torch.int64)
        self.lib.nearest(self.rows, self.size, self.dim, q.data_ptr(), q.size(0), out.data_ptr())
        return out


class Extractor(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Conv1d(8, dim, 1)

    @torch.no_grad()
    def forward(self, x):
        return self.proj(x)[0]


def main(dim=32):
    torch.manual_seed(0)
    lib = build_kernel()
    extractor = Extractor(dim)
    bank = FeatureBank(lib, dim)
    for items in (2_000, 500_000):
        feats = extractor(torch.randn(1, 8, items))
        bank.load(feats)
        probe = feats[:, :4].t()
        print(items, "items, nearest:", bank.query(probe).tolist(), flush=True)


if __name__ == "__main__":
    main()
