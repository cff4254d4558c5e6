"""An uncaught C++ exception: uncaught_cpp_exception.py WAY [BEFORE]; the library is TERMINATE_LIBRARY."""

import ctypes
import os
import sys

import torch  # noqa: F401  # the torch half of the recorder starts here

library = ctypes.CDLL(os.environ["TERMINATE_LIBRARY"])
before = sys.argv[2] if len(sys.argv) > 2 else ""
if before.startswith("handler"):
    library.own_handler(before.startswith("handler that passes on"))
if before == "disabled" or before.endswith("enabled again"):
    import pytracer

    pytracer.disable()
    if before != "disabled":
        pytracer.enable()
library.on_thread(sys.argv[1].encode())
print("still here")
