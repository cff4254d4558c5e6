"""Storages freed in a library's destructors, after Python has ended; and on one of Python's threads."""

import ctypes
import os
import sys
import threading

import torch

library = ctypes.CDLL(os.environ["BLOB_LIBRARY"])
thread = threading.Thread(target=lambda: print("thread", float((torch.ones(1000) + 1).sum())))
thread.start()
thread.join()
library.keep_one_of_torchs() if sys.argv[1] == "torchs" else library.make(ctypes.c_size_t(4096))
print("main", float((torch.ones(1000) + 1).sum()))
