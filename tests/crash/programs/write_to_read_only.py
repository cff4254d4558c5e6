"""Writes into a checkpoint that is mapped for reading only."""

import ctypes
import mmap
import os
import tempfile

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p


def patch_weights():
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        address = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        print(hex(address + 24), flush=True)
        library.write_field(ctypes.c_void_p(address), 1)


patch_weights()
