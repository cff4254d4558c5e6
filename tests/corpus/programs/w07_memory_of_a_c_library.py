# neuronsimulator/nrn#2551: an array of memory that its C library frees
import ctypes

import numpy as np
import torch

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def frame(count):
    memory = libc.malloc(4 * count)
    pixels = np.ctypeslib.as_array(ctypes.cast(memory, ctypes.POINTER(ctypes.c_float)), (count,))
    pixels[:] = 1
    tensor = torch.from_numpy(pixels)
    libc.free(memory)
    return tensor


print(frame(16_000_000).mean())
