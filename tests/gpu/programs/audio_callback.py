"""Feeds audio blocks to a native sorter while the device computes spectra."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

Block = ctypes.POINTER(ctypes.c_float)
libc = ctypes.CDLL(None)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Block), ctypes.POINTER(Block))
def louder(first: ctypes.Array, second: ctypes.Array) -> int:
    """Order two blocks by their first sample."""
    left = ctypes.string_at(ctypes.cast(first[0], ctypes.c_void_p).value or 0, 4)
    right = ctypes.string_at(ctypes.cast(second[0], ctypes.c_void_p).value or 0, 4)
    return (left > right) - (left < right)


def sort_blocks(blocks: Sequence[ctypes.Array], slots: int) -> None:
    """Sort a table of block pointers in place."""
    table = (Block * slots)(*[ctypes.cast(block, Block) for block in blocks])
    libc.qsort(table, ctypes.c_size_t(slots), ctypes.c_size_t(ctypes.sizeof(Block)), louder)


def main() -> None:
    """Compute the spectra and sort the blocks meanwhile."""
    torch.manual_seed(0)
    samples = torch.randn(8, 4096, device="cuda")
    spectra = torch.fft.rfft(samples).abs()
    torch.cuda._sleep(2_000_000_000)
    peak = spectra.amax()
    blocks = [(ctypes.c_float * 64)(*([float(i)] * 64)) for i in range(6)]
    sort_blocks(blocks, slots=8)
    print("peak", peak.item())


if __name__ == "__main__":
    main()
