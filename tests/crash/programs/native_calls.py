"""Calls a C library in ways that end it: native_calls.py LIBRARY number|constant|data|threads|alone|owners|wrong|row.

number: a count that is too large. constant: a constant of the library is written. data: no count is passed, one in
the data is too large. threads: two threads are in the library at once. alone: the other thread sleeps in Python.
owners: the tensor of from_dlpack() and the object that gave its memory away both free it. wrong: something that is no
block is freed, without any tensor. row: row -1 of an array that lies where a tensor was, before.
"""

import ctypes
import struct
import sys
import threading
import time

import numpy as np
import torch

library = ctypes.CDLL(sys.argv[1])
how = sys.argv[2]
library.enlarge.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
library.label.argtypes = library.score.argtypes = library.enlarge.argtypes
library.decode.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
library.samples_new.argtypes, library.samples_new.restype = [ctypes.c_int64], ctypes.c_void_p
library.samples_free.argtypes, library.samples_free.restype = [ctypes.c_void_p], None


def enlarge(columns, times):
    row = torch.zeros(columns)
    library.enlarge(row.data_ptr(), columns, times)


def label(columns, times):
    row = torch.zeros(columns)
    library.label(row.data_ptr(), columns, times)


def decode(file):
    pixels = torch.zeros(16)
    library.decode(file, pixels.data_ptr())


def score(row):
    """Larger than 32 MiB: malloc() gives such a block a mapping of its own, and takes it back."""
    torch.zeros(16 << 20)
    scores = np.zeros((9, 1 << 20), np.float32)
    library.score(scores.ctypes.data, row, scores.shape[1])


class Samples:
    def __init__(self, count):
        self.managed = library.samples_new(count)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return capsule(self.managed, b"dltensor", None)

    def __del__(self):
        library.samples_free(self.managed)


def load(count):
    samples = Samples(count)
    return torch.from_dlpack(samples)


if how == "number":
    enlarge(64, 50_000_000)
elif how == "constant":
    label(1 << 20, 50_000_000)
elif how == "data":
    decode(struct.pack("i", 1 << 30) + bytes(60))
elif how in ("threads", "alone"):
    target, argument = (library.with_state, 1) if how == "threads" else (time.sleep, 1000)
    threading.Thread(target=lambda: target(argument), daemon=True).start()
    time.sleep(0.3)
    library.with_state(0)
elif how == "owners":
    for count in (64, 96, 128):
        batch = load(count)
        del batch
elif how == "wrong":
    row = torch.zeros(64)
    library.samples_free(row.data_ptr() + 8)
elif how == "row":
    score(-1)
