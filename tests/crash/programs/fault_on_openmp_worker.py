"""A tensor over a mapping whose upper half has been unmapped; torch's second OpenMP thread reads that half."""

import ctypes
import mmap

import torch

NBYTES = 8 << 20

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
PROTECTION, FLAGS = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
address = libc.mmap(None, ctypes.c_size_t(NBYTES), PROTECTION, FLAGS, -1, 0)
pixels = torch.frombuffer((ctypes.c_float * (NBYTES // 4)).from_address(address), dtype=torch.float32)


def normalize(image):
    return image * 2.0


torch.set_num_threads(2)
normalize(pixels)
libc.munmap(ctypes.c_void_p(address + NBYTES // 2), ctypes.c_size_t(NBYTES // 2))
print(hex(address + NBYTES // 2), flush=True)
normalize(pixels)
