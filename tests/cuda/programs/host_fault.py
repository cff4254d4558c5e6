"""Host code reads device memory, selected by the first word; see the functions."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import torch


def block() -> int:
    """A live tensor of 4 MiB."""
    keep["tensor"] = torch.empty(1 << 20, device="cuda:1")
    return int(keep["tensor"].data_ptr()) + 4096


def block0() -> int:
    """The same on the first device."""
    keep["tensor"] = torch.empty(1 << 20, device="cuda")
    return int(keep["tensor"].data_ptr()) + 4096


def awaited() -> int:
    """Freed by the program while another stream may still use it."""
    side = torch.cuda.Stream()
    tensor = torch.empty(1 << 20, device="cuda")
    tensor.record_stream(side)
    keep["hang"] = ctypes.CDLL("libcudart.so.13").fakecuda_hang(1)
    addr = tensor.data_ptr()
    del tensor  # awaited
    return addr + 64


def private_pool() -> int:
    """What a CUDA graph allocated."""
    graph = torch.cuda.CUDAGraph()
    static = torch.ones(1 << 18, device="cuda")
    with torch.cuda.graph(graph):
        keep["out"] = static * 2
    graph.replay()
    keep["graph"] = graph, static
    return int(keep["out"].data_ptr()) + 16


def freed() -> int:
    """Freed, and kept by the allocator."""
    tensor = torch.empty(1 << 20, device="cuda")
    addr = tensor.data_ptr()
    del tensor
    return addr + 32


def mem_pool() -> int:
    """From the program's own pool."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        keep["pool"] = pool, torch.empty(1 << 20, device="cuda")
    return int(keep["pool"][1].data_ptr())


def segment() -> int:
    """A part of a segment that never held a block."""
    keep["tensor"] = torch.empty(1024, device="cuda")
    return int(keep["tensor"].data_ptr()) + (1 << 20)


keep: dict[str, Any] = {}
if __name__ == "__main__":
    addr = globals()[sys.argv[1]]()
    print(hex(addr), flush=True)
    ctypes.string_at(addr, 4)
