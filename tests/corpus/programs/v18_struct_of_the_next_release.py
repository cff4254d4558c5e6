"""Tokens for a language model from a C library; its struct has one more field since the last release."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <stdint.h>
struct params { int32_t context; int32_t flags; int64_t threads; const int32_t *ids; int64_t count; };
int64_t sample(const struct params *p, int64_t *out, int64_t n) {
    int64_t made = 0;
    for (int64_t i = 0; i < n; i++) { out[i] = p->ids[i * 7] % p->context; made++; }
    return made;
}
"""


class Params(ctypes.Structure):
    _fields_ = [
        ("context", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("ids", ctypes.POINTER(ctypes.c_int32)),
        ("count", ctypes.c_int64),
    ]


def build():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "sampler.c"), os.path.join(folder, "libsampler.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    sampler = ctypes.CDLL(library)
    sampler.sample.argtypes = [ctypes.POINTER(Params), ctypes.c_void_p, ctypes.c_int64]
    sampler.sample.restype = ctypes.c_int64
    return sampler


def draw(sampler, ids, n):
    params = Params(50000, 0, (ctypes.c_int32 * len(ids))(*ids), len(ids))
    out = torch.zeros(n, dtype=torch.int64)
    sampler.sample(ctypes.byref(params), out.data_ptr(), n)
    return out


def train():
    sampler, table = build(), nn.Embedding(50000, 16)
    for step in range(3):
        print(step, table(draw(sampler, list(range(1, 500)), 64)).mean().item())


train()
