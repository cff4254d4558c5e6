"""Reads through a null pointer in `__init__` of a class that was called often: CPython has specialized the call."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


class Reader:
    def __init__(self, record):
        if record is None:
            library.read_field(record)


def make_readers():
    for record in [*range(100), None]:
        Reader(record)


make_readers()
