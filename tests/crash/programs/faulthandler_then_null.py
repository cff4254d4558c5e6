"""Enables faulthandler itself, then reads through a null pointer."""

import ctypes
import faulthandler
import os

faulthandler.enable()
library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def learning_rate():
    library.read_field(None)


learning_rate()
