"""Recording starts when CUDA is already in use; then host code reads an earlier tensor."""

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
