"""Native recursion without an end: stack_overflow.py main|thread."""

import ctypes
import os
import sys
import threading

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


def walk_tree():
    library.depth_of(ctypes.create_string_buffer(1))


if sys.argv[1] == "main":
    walk_tree()
else:
    walker = threading.Thread(target=walk_tree, name="walker")
    walker.start()
    walker.join()
