"""Recording begins when CUDA is in use already; then host code reads a tensor from before."""

from __future__ import annotations

import ctypes
import sys

import torch

import pytracer

early = torch.empty(1 << 20, device="cuda")
pytracer.enable(sys.argv[1])
addr = early.data_ptr() + 128
print(hex(addr), flush=True)
ctypes.string_at(addr, 4)
