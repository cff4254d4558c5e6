"""Reads a mapped file after it was closed: closed_file.py close|thread|replaced|child|in_use.

close: a reader keeps the address of a record, as ctypes, LMDB's and Arrow's readers do, and the file is closed.
thread: another thread closes it. replaced: other memory is mapped in the hole, and may not be read. child: the file was
closed before a fork, and the child reads. in_use: closed, and mapped again at the same place: nothing dies.
"""

import ctypes
import mmap
import os
import sys
import threading

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
NBYTES, FIXED = 1 << 20, 0x32


class Records:
    def __init__(self):
        self.file = mmap.mmap(-1, NBYTES)
        self.first = ctypes.addressof(ctypes.c_char.from_buffer(self.file))

    def close(self):
        self.file.close()

    def read(self, number):
        return ctypes.string_at(self.first + 64 * number, 64)


how = sys.argv[1]
records = Records()
assert len(records.read(1000)) == 64
if how == "thread":
    other = threading.Thread(target=records.close)
    other.start()
    other.join()
else:
    records.close()
if how in ("replaced", "in_use"):
    assert libc.mmap(records.first, NBYTES, 3 if how == "in_use" else 0, FIXED, -1, 0) == records.first
child = os.fork() if how == "child" else 0
if child == 0:
    records.read(1000)
else:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -11)
