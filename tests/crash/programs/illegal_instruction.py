"""Runs into a branch that the compiler was told cannot be reached."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def dispatch(dtype):
    if dtype == "complex32":
        library.unreachable_branch()


dispatch("complex32")
