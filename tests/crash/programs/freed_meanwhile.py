"""One thread replaces a tensor while another one, in native code and without the GIL, still writes to its memory.

Needs MALLOC_MMAP_THRESHOLD_: each tensor has a mapping of its own then, and the next one of that size gets the hole.
"""

import ctypes
import threading
import time

import torch

NBYTES = 1 << 20
box = {"frame": torch.empty(NBYTES, dtype=torch.uint8)}


def fill():
    addr = box["frame"].data_ptr()
    while True:
        ctypes.memset(addr, 1, NBYTES)


def replace():
    box["frame"] = None
    box["frame"] = torch.empty(NBYTES, dtype=torch.uint8)


threading.Thread(target=fill, daemon=True).start()
for _ in range(2000):
    time.sleep(0.002)
    replace()
