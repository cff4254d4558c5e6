"""A thread waits in a system call while the main thread's faults are repaired by a handler of the program's own."""

import ctypes
import os
import threading
import time

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
libc = ctypes.CDLL(None, use_errno=True)
seen = []


def wait_in_native_code():
    # usleep is not restarted after a signal handler, whatever SA_RESTART is (signal(7)).
    seen.append((libc.usleep(1_000_000), ctypes.get_errno()))


library.install_write_barrier()
thread = threading.Thread(target=wait_in_native_code)
thread.start()
time.sleep(0.3)
print(library.write_through_barrier(3))
thread.join()
print(seen)
