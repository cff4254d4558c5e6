"""A library keeps the address of a temporary tensor and reads it later. Exits normally without guards."""

import ctypes
import os

import torch

kernels = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
kernels.use_table.argtypes = [ctypes.c_void_p]
kernels.look_up.argtypes = [ctypes.c_long]
kernels.look_up.restype = ctypes.c_float


def register(weights):
    scaled = weights * 2
    kernels.use_table(scaled.data_ptr())


def step():
    return kernels.look_up(3)


register(torch.arange(1000.0))
step()
print("finished", flush=True)
