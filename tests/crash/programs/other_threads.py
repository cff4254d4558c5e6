"""A reader of shards waits in Python, two native threads wait outside Python, and the main thread reads through null.

Arguments: "blocked" for a native thread that blocks all signals, "damaged" for one whose stack is garbage, "children"
prints the result of waiting for any child.
"""

import ctypes
import os
import sys
import threading
import time

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
read_end, _ = os.pipe()


def read_shards():
    os.read(read_end, 1)


def train():
    ctypes.string_at(0)


threading.Thread(target=read_shards, name="shards", daemon=True).start()
library.park_thread(0)
library.park_thread(int("blocked" in sys.argv))
if "damaged" in sys.argv:
    library.park_thread_on_a_damaged_stack()
if "children" in sys.argv:
    try:
        print(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        print("no child")
sys.stdout.flush()
time.sleep(0.2)  # until all of them wait
train()
