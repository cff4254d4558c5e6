"""Handles a signal in Python: signal_handled_in_python.py NAME kill|raise|abort."""

import ctypes
import os
import signal
import sys

number = getattr(signal, sys.argv[1])
signal.signal(number, lambda signum, frame: print("caught", signal.Signals(signum).name, flush=True))
if sys.argv[2] == "kill":
    os.kill(os.getpid(), number)
elif sys.argv[2] == "raise":
    signal.raise_signal(number)
else:
    ctypes.CDLL(None).abort()
print("goes on", flush=True)
