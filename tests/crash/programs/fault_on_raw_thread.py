"""A thread started by native code reads through a null pointer; Python has no state for it."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def next_batch():
    library.prefetch(None)


next_batch()
