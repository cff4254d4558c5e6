import ctypes
import os
import subprocess

import numpy as np

SOURCE = r"""
#include <stdint.h>
static uint32_t state = 2463534242u;
static uint32_t next_u32(void) {
    state ^= state << 13; state ^= state >> 17; state ^= state << 5;
    return state;
}
void seed_sampler(uint32_t s) { state = s ? s : 1u; }

void sample_triplets(const int32_t *anchor_brand, int n, int n_brands,
                     const int32_t *members, const int32_t *starts,
                     const int32_t *counts, int32_t *pos, int32_t *neg) {
    for (int i = 0; i < n; i++) {
        int b = anchor_brand[i];
        pos[i] = members[starts[b] + next_u32() % (uint32_t)counts[b]];
        int o = next_u32() % (uint32_t)(n_brands - 1);
        if (o >= b) o++;
        neg[i] = members[starts[o] + next_u32() % (uint32_t)counts[o]];
    }
}
"""


def _build():
    src, lib = "/tmp/p72_sampler.c", "/tmp/p72_sampler.so"
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
    return ctypes.CDLL(lib)


_i32 = np.ctypeslib.ndpointer(np.int32, flags="C_CONTIGUOUS")
_lib = _build()
_lib.sample_triplets.argtypes = [_i32, ctypes.c_int, ctypes.c_int, _i32, _i32, _i32, _i32, _i32]
_lib.sample_triplets.restype = None
_lib.seed_sampler.argtypes = [ctypes.c_uint32]


def seed(value):
    _lib.seed_sampler(value)


def sample_triplets(anchor_brand, index):
    n = len(anchor_brand)
    pos, neg = np.empty(n, np.int32), np.empty(n, np.int32)
    _lib.sample_triplets(np.ascontiguousarray(anchor_brand), n, len(index.counts),
                         index.members, index.starts, index.counts, pos, neg)
    return pos, neg
