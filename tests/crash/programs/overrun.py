"""Native code adds up a tensor, with a wrong number of elements.

The argument is the number of elements to skip first: past the end, before the start (negative), or far away.
"""

import ctypes
import os
import sys

import torch

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.element.argtypes = [ctypes.c_void_p, ctypes.c_long]
library.element.restype = ctypes.c_float


def gather(weights, index):
    return library.element(weights.data_ptr(), index)


weights = torch.zeros(16 << 20)  # 64 MiB: the C library maps it alone
print(hex(weights.data_ptr()), weights.numel(), flush=True)
print(gather(weights, int(sys.argv[1])))
