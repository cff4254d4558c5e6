"""Raises while a variable of the frame is a tensor whose memory was unmapped, in a forked child that must not wait.

The child inherits torch's threads' state, but not the threads: an operator on many elements would wait for them.
"""

import ctypes
import mmap
import os
import sys

import torch


def read_labels(labels, weights):
    raise ValueError("labels of another file")


torch.set_num_threads(2)
weights = torch.ones(1 << 20)
weights.sum()
file = mmap.mmap(-1, 1 << 16)
address = ctypes.addressof(ctypes.c_char.from_buffer(file))
labels = torch.frombuffer((ctypes.c_char * 4096).from_address(address), dtype=torch.int64)
file.close()
child = os.fork()
if child != 0:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
read_labels(labels, torch.ones(1 << 14))
