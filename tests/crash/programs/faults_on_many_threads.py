"""Eight threads read through wild pointers of their own at the same moment."""

import ctypes
import os
import threading

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.read_field.argtypes = [ctypes.c_size_t]
together = threading.Barrier(8)


def decode(number):
    together.wait()
    library.read_field(0x1000 * number)


threads = [threading.Thread(target=decode, args=(number,)) for number in range(1, 9)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
