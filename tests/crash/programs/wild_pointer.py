"""Uses a number as an address."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.read_field.argtypes = [ctypes.c_size_t]


def read_header(token):
    return library.read_field(token)


read_header(0x1234_5678_9000)
