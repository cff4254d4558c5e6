"""How the programs about DDP and FSDP fault: one rank makes a page inaccessible, says what lies there, and reads it."""

import ctypes
import json

import torch

PAGE = 4096
LIBC = ctypes.CDLL(None, use_errno=True)


_held = []


def fill_heap(nbytes=16 * 1024):
    """Takes what is free in the heap, so that larger blocks get mappings of their own, which end when they are freed.

    The threshold that faults.py sets counts only where no free block of the heap fits.
    """
    while not _held or _held[-1].data_ptr() >> 40 != 0x7F:
        _held.append(torch.empty(nbytes, dtype=torch.uint8))
        assert len(_held) < 10000


def page_in(tensor, nbytes=0):
    """The first page boundary at or behind `nbytes` bytes into a tensor, such that the whole page lies in it."""
    addr = -(-(tensor.data_ptr() + nbytes) // PAGE) * PAGE
    assert addr + PAGE <= tensor.data_ptr() + tensor.numel() * tensor.element_size(), "the tensor is too small"
    return addr


def say(**truth):
    """What the report must tell, as one line of JSON."""
    print("TRUTH " + json.dumps(truth), flush=True)


def read(addr):
    """Reads a byte."""
    return ctypes.c_ubyte.from_address(addr).value


def touch(addr, **truth):
    """Faults at `addr`, in live memory that lies on a page of its own."""
    say(addr=hex(addr), **truth)
    assert LIBC.mprotect(ctypes.c_void_p(addr & ~(PAGE - 1)), PAGE, 0) == 0
    read(addr)


def floats_at(addr, count):
    """Values in memory, without a tensor."""
    return list((ctypes.c_float * count).from_address(addr))
