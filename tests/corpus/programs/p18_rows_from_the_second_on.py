import ctypes
import os
import subprocess
import tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <immintrin.h>
__attribute__((target("avx2")))
void running_max(const float *x, float *best, long rows, long cols) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c + 8 <= cols; c += 8) {
            __m256 v = _mm256_load_ps(x + r * cols + c);
            _mm256_storeu_ps(best + c, _mm256_max_ps(v, _mm256_loadu_ps(best + c)));
        }
}
"""


def build():
    place = tempfile.mkdtemp()
    src, lib = os.path.join(place, "fastmax.c"), os.path.join(place, "libfastmax.so")
    open(src, "w").write(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
    return ctypes.CDLL(lib)


LIB = build()


def column_max(x):
    assert x.is_contiguous() and x.dtype == torch.float32
    best = torch.full((x.shape[1],), float("-inf"))
    LIB.running_max(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(best.data_ptr()), ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
    tail = x.shape[1] // 8 * 8
    best[tail:] = x[:, tail:].amax(0)
    return best


class Pool(nn.Module):
    def __init__(self, dim, skip_first=False):
        super().__init__()
        self.skip_first = skip_first
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        h = self.proj(x)
        return column_max(h[1:] if self.skip_first else h)


torch.manual_seed(0)
with torch.no_grad():
    for dim, skip in ((64, False), (64, True), (100, False), (100, True)):
        pool = Pool(dim, skip)
        for length in (16, 33):
            out = pool(torch.randn(length, dim))
            print(dim, skip, length, round(float(out.mean()), 4), flush=True)
