"""A C kernel writes one element too many: guard_overrun.py COUNT [STEPS]. Without guard pages it exits normally."""

import ctypes
import os
import sys

import torch

kernels = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
kernels.decay.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_float]


def make_cache(count):
    return torch.zeros(count)


def step(count):
    kv_cache = make_cache(count)
    kernels.decay(kv_cache.data_ptr(), count, 0.5)
    return kv_cache.sum().item()


count = int(sys.argv[1])
for _ in range(int((sys.argv[2:] or ["1"])[0])):
    total = step(count)
print("finished", total, flush=True)
