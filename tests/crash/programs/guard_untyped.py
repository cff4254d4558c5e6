"""A library keeps the address of a torch.UntypedStorage's memory, or writes past it. Exits normally without guards."""

import ctypes
import os
import sys

import torch

kernels = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
kernels.use_table.argtypes = [ctypes.c_void_p]
kernels.look_up.argtypes = [ctypes.c_long]
kernels.look_up.restype = ctypes.c_float
kernels.decay.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_float]


def overrun():
    pages = torch.UntypedStorage(4096)
    kernels.decay(pages.data_ptr(), 1024, 0.5)


def freed():
    table = torch.UntypedStorage(8192)
    kernels.use_table(table.data_ptr())
    table.resize_(0)
    kernels.look_up(3)


globals()[sys.argv[1]]()
print("finished", flush=True)
