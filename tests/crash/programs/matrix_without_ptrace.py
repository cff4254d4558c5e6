"""Runs a command in which ptrace() is forbidden: matrix_without_ptrace.py COMMAND..."""

import ctypes
import os
import sys

assert ctypes.CDLL(os.environ["MATRIX_LIBRARY"]).matrix_forbid_ptrace() == 0
os.execv(sys.argv[1], sys.argv[1:])
