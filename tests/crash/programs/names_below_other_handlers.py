"""A C library handles SIGSEGV after pytracer.enable(), and the memory of a named tensor is released unobserved.

    names_below_other_handlers.py HOW

HOW is "handler" (the library ends the process with status 11) or "mask" (the thread blocks every signal). Prints where
the live tensor has moved to.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys

import torch

import pytracer
from pytracer.record.api import core

IMPL = 16  # THPVariable: reference count, type, TensorImpl (torch 2.11 to 2.14)

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def nowhere() -> int:
    """An address that used to be mapped."""
    at = libc.mmap(None, mmap.PAGESIZE, 3, 0x22, -1, 0)
    libc.munmap(at, mmap.PAGESIZE)
    return int(at)


model = torch.nn.ModuleList([torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pytracer.step(0)
dead, live = model[0].weight, model[1].weight
word = ctypes.c_uint64.from_address(id(dead) + IMPL)
impl, word.value = word.value, nowhere()  # as in a freed object whose block serves another purpose
live.data = torch.zeros(4 * 1024 * 1024)

if sys.argv[1] == "handler":
    libc.signal(signal.SIGSEGV, libc._exit)  # the kernel gives it the signal's number
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
looked_ns = core().held.pytracer_refresh_names()
word.value = impl
print(live.data_ptr(), looked_ns > 0)
