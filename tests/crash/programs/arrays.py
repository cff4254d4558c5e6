"""Reads a wrong address while local variables hold arrays of NumPy."""

import ctypes

import numpy as np
import torch


class Table(np.ndarray):
    pass


class Keeper:
    def __init__(self):
        self.rows = np.zeros((5, 7), dtype=np.int16)
        self.rows[2, 3] = -3


def crash(image, keeper, address):
    flipped = image[::-1]
    turned = np.ones((2, 3, 4)).T
    table = np.arange(6, dtype=np.int32).view(Table)
    nothing = np.zeros((0, 3))
    swapped = np.arange(4, dtype=">i4")  # other numbers than their bytes are for C
    ctypes.string_at(address)
    return flipped, turned, table, nothing, swapped


torch.zeros(1)  # what is recorded of locals needs torch's layout
pixels = np.zeros((40, 30), dtype=np.float32)
pixels[3, :3] = np.nan, np.inf, np.nan
crash(pixels, Keeper(), 8)
