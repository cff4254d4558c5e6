"""A handler in C is made from a Python function, and nothing keeps what ctypes made."""

import ctypes
import gc
import os
import signal

import torch

libc = ctypes.CDLL(None)
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


def install(name):
    libc.signal(signal.SIGUSR2, HANDLER(lambda number: print(name, number)))


def train(steps):
    held = []
    for step in range(steps):
        held.append(HANDLER(lambda number: None) if step % 2 else torch.randn(8))
        if step == 30:
            held.clear()
            gc.collect()
            os.kill(os.getpid(), signal.SIGUSR2)


install("frames")
gc.collect()
train(50)
