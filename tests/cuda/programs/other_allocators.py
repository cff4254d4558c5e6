"""Allocators that cannot be followed: cudaMallocAsync by the environment, or a pluggable one."""

from __future__ import annotations

import os
import sys

import torch

if sys.argv[1] == "pluggable":
    # The fake runtime's own functions have other arguments; these are torch's for pluggable allocators.
    library = os.path.join(os.environ["LD_LIBRARY_PATH"].split(":")[0], "libcudart.so.13")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "fakecuda_plug_alloc", "fakecuda_plug_free")
    torch.cuda.memory.change_current_allocator(allocator)
print(torch.zeros(2, device="cuda").cpu().tolist())
