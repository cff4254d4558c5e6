"""Maps a data file and continues reading it after it was truncated."""

import ctypes
import mmap
import os
import tempfile

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def read_all(tokens, nbytes):
    return library.sum_bytes(ctypes.c_void_p(tokens), ctypes.c_size_t(nbytes))


with tempfile.NamedTemporaryFile(suffix=".tokens") as file:
    file.truncate(16384)
    mapping = mmap.mmap(file.fileno(), 16384)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    read_all(address, 16384)
    file.truncate(4096)
    print(hex(address + 4096), flush=True)
    read_all(address, 16384)
