"""Uses overwritten memory as an address: no x86-64 or aarch64 process can map it."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.read_field.argtypes = [ctypes.c_size_t]


def next_block(link):
    return library.read_field(link)


next_block(0xDEAD_BEEF_DEAD_BEEF)
