"""Run a torch linear layer through the vendored tinyinfer C library."""
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

TINYINFER_C = r"""
#include <stdbool.h>
#include <stdint.h>
typedef void (*ti_progress)(float done, void *user);
typedef struct {
    int32_t seed;
    int32_t rows;
    int32_t cols;
    float scale;
    ti_progress progress;
    void *user;
    bool low_memory;
} ti_params;

void ti_linear(const ti_params *p, const float *w, const float *x, float *y) {
    if (p->progress) p->progress(0.0f, p->user);
    for (int32_t r = 0; r < p->rows; r++) {
        float acc = 0.0f;
        for (int32_t c = 0; c < p->cols; c++) acc += w[(int64_t)r * p->cols + c] * x[c];
        y[r] = acc * p->scale;
    }
}
"""


class TiParams(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_int32),
        ("cols", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("low_memory", ctypes.c_bool),
        ("seed", ctypes.c_int32),
        ("progress", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
    ]


def build():
    target = os.path.join(tempfile.mkdtemp(prefix="tinyinfer"), "libtinyinfer.so")
    source = target.replace(".so", ".c")
    with open(source, "w") as f:
        f.write(TINYINFER_C)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", target], check=True)
    lib = ctypes.CDLL(target)
    lib.ti_linear.restype = None
    lib.ti_linear.argtypes = [ctypes.POINTER(TiParams)] + [ctypes.c_void_p] * 3
    return lib


class TinyLinear(nn.Module):
    def __init__(self, lib, linear, seed=20231):
        super().__init__()
        self.lib, self.weight = lib, linear.weight.detach().contiguous()
        rows, cols = self.weight.shape
        self.params = TiParams(rows=rows, cols=cols, scale=1.0, seed=seed)

    def forward(self, x):
        y = torch.empty(self.params.rows)
        self.lib.ti_linear(ctypes.byref(self.params), self.weight.data_ptr(), x.data_ptr(), y.data_ptr())
        return y


def main():
    torch.manual_seed(0)
    linear = nn.Linear(512, 128, bias=False)
    fast, x = TinyLinear(build(), linear), torch.randn(512)
    print("reference", linear(x)[:3].tolist(), flush=True)
    print("tinyinfer", fast(x)[:3].tolist(), flush=True)


if __name__ == "__main__":
    main()
