"""faulthandler first, pytracer second, then a read through null: faulthandler_then_pytracer.py RUN."""

import ctypes
import faulthandler
import os
import sys

faulthandler.enable()
if sys.argv[1:]:
    import pytracer

    pytracer.enable(sys.argv[1])
library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def learning_rate():
    library.read_field(None)


learning_rate()
