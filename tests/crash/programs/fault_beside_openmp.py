"""OpenMP's workers wait for the next parallel region when the main thread reads through null."""

import ctypes

import torch

torch.set_num_threads(2)
torch.ones(1 << 20) * 2.0
ctypes.string_at(0)
