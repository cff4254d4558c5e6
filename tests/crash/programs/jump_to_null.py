"""Native code calls a callback that was never registered."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def on_progress():
    library.call_back(None)


on_progress()
