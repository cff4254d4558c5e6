"""A helper clears an array by its number of elements times 8; its elements have 4 bytes."""

import ctypes

import numpy as np
import torch


def clear(array):
    ctypes.memset(array.ctypes.data, 0, array.size * 8)


def accumulate(frames):
    total = np.zeros((4096, 4096, 4), dtype=np.float32)
    for frame in frames:
        clear(total)
        total += frame
    return torch.from_numpy(total)


print(accumulate([1.0, 2.0]).mean())
