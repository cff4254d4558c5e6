# numpy: the array behind .ctypes.data is a temporary (numpy/numpy#9562-style lifetime)
import ctypes

import numpy as np
import torch

libc = ctypes.CDLL(None)
libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def column(table, name):
    values = table[name].astype(np.float64)
    return values.ctypes.data, values.nbytes


table = {"x": np.ones(3_000_000, np.float32), "y": np.ones(3_000_000, np.float32)}
target = torch.ones(3_000_000, dtype=torch.float64)
at, nbytes = column(table, "x")
print(libc.memcmp(target.data_ptr(), at, nbytes))
