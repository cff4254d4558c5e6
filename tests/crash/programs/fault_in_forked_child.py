"""Forks while threads run; the child reads through a null pointer at once, its parent continues."""

import ctypes
import os
import threading

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(4)]
for thread in threads:
    thread.start()


def in_child():
    library.read_field(None)


pid = os.fork()
if pid == 0:
    in_child()
print(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
stop.set()
