"""Reads a field of a record that was never loaded: its address is null."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def load_record(name):
    return None


def learning_rate():
    return library.read_field(load_record("schedule"))


print("before", flush=True)
learning_rate()
print("after", flush=True)
