"""A script that enables pytracer itself, marks and counts, and reads through null: null_after_enable.py [LEVEL]."""

import ctypes
import os
import sys

import pytracer

directory = pytracer.enable(level=sys.argv[1] if sys.argv[1:] else None)
print(directory, flush=True)
pytracer.mark("epoch 3 begins")
pytracer.step(17)


def evaluate():
    ctypes.CDLL(os.environ["FAULTS_LIBRARY"]).read_field(None)


evaluate()
