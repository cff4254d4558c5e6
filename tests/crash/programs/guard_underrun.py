"""A C kernel that reads the element before the first: part of malloc's header. Exits normally without guards."""

import ctypes
import os
import sys

import torch

kernels = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
kernels.last_change.argtypes = [ctypes.c_void_p, ctypes.c_long]
kernels.last_change.restype = ctypes.c_float


def step(tokens):
    return kernels.last_change(tokens.data_ptr(), 0)


step(torch.arange(int((sys.argv[1:] or ["500"])[0])))
print("finished", flush=True)
