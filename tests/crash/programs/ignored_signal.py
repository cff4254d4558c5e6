"""Ignores SIGSEGV and is sent one; then a real fault, which cannot be ignored: ignored_signal.py [fault]."""

import ctypes
import os
import signal
import sys

signal.signal(signal.SIGSEGV, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGSEGV)
print("goes on", flush=True)
if sys.argv[1:]:
    ctypes.string_at(0)
