# pytorch/pytorch#2714: a kernel built for another processor
import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <stddef.h>
__attribute__((noinline)) static void tile(float *x) { __asm__ volatile(".byte 0xc4,0xe2,0x7b,0x49,0xc0" ::: "memory"); x[0] += 1; }
void scale_rows(float *x, size_t n) { for (size_t i = 0; i < n; i++) tile(x + i); }
"""  # tilezero tmm0: -march=native on a machine with AMX


def build():
    directory = tempfile.mkdtemp()
    path = os.path.join(directory, "libkernels.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-g", "-xc", "-", "-o", path], input=SOURCE.encode(), check=True)
    return ctypes.CDLL(path)


def forward(kernels, x):
    kernels.scale_rows(ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(x.numel()))
    return x


print(forward(build(), torch.zeros(8)))
