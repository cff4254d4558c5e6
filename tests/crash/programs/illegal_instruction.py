"""Executes the trap in a branch that should be unreachable."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def dispatch(dtype):
    if dtype == "complex32":
        library.unreachable_branch()


dispatch("complex32")
