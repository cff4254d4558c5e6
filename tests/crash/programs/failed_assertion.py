"""Passes a shape to native code that asserts another one."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def reshape(rows):
    library.check_shape(rows)


reshape(-3)
