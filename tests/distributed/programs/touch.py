"""How the programs about DDP and FSDP fault: one rank makes a page inaccessible, prints what is there, and reads it."""

import ctypes
import gc
import json

import torch

PAGE = 4096
MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.sbrk.restype = LIBC.mmap.restype = ctypes.c_void_p

_held = []
_room = []


def fill_heap(nbytes=16 * 1024):
    """Allocates what is free in the heap, so that larger blocks get their own mappings, which are unmapped when freed.

    The threshold that faults.py sets applies only where no free block of the heap fits.
    """
    for _ in range(10000):
        _held.append(torch.empty(nbytes, dtype=torch.uint8))
        if _held[-1].data_ptr() > LIBC.sbrk(ctypes.c_long(0)):
            return
    raise AssertionError("every block came from the heap")


def make_room():
    """Reserves address space above all later mappings; release it before the memory in question is freed.

    Later mappings are then placed there, because the kernel takes the highest hole that is large enough, and the hole
    that the freed memory leaves stays empty.
    """
    gc.collect()  # a later collection would leave holes above
    _room[:] = [_reserve(256 * MIB)]
    fill_holes()
    fill_heap()


def fill_holes():
    """Fills all holes above the reserved room that could hold a block's mapping."""
    for nbytes in (MIB, 4 * PAGE):
        while (addr := _reserve(nbytes)) > _room[0]:
            pass
        _give_back(addr, nbytes)


def leave_room():
    """Releases it."""
    _give_back(_room[0], 256 * MIB)


def _reserve(nbytes):
    private_anonymous = 0x22
    addr = LIBC.mmap(None, ctypes.c_size_t(nbytes), 0, private_anonymous, -1, ctypes.c_long(0))
    assert addr != ctypes.c_void_p(-1).value
    return addr


def _give_back(addr, nbytes):
    assert LIBC.munmap(ctypes.c_void_p(addr), ctypes.c_size_t(nbytes)) == 0


def page_in(tensor, nbytes=0):
    """The first page boundary at or after `nbytes` bytes into a tensor, such that the whole page is in it."""
    addr = -(-(tensor.data_ptr() + nbytes) // PAGE) * PAGE
    assert addr + PAGE <= tensor.data_ptr() + tensor.numel() * tensor.element_size(), "the tensor is too small"
    return addr


def say(**truth):
    """Prints the expected report, as one line of JSON."""
    print("TRUTH " + json.dumps(truth), flush=True)


def read(addr):
    """Reads a byte."""
    return ctypes.c_ubyte.from_address(addr).value


def touch(addr, **truth):
    """Faults at `addr`, in live memory on its own page."""
    say(addr=hex(addr), **truth)
    assert LIBC.mprotect(ctypes.c_void_p(addr & ~(PAGE - 1)), PAGE, 0) == 0
    read(addr)


def read_freed(addr, **truth):
    """Faults at `addr`, in memory that was unmapped after `leave_room()`."""
    say(addr=hex(addr), kind="freed-storage", **truth)
    assert addr < _room[0]
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            assert not start <= addr < end, f"a later mapping filled the hole: {line}"
    read(addr)


def floats_at(addr, count):
    """Values in memory, without a tensor."""
    return list((ctypes.c_float * count).from_address(addr))
