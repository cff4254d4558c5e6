"""A thread that native code has started reads through a null pointer; Python knows nothing of it."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def next_batch():
    library.prefetch(None)


next_batch()
