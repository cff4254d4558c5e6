"""A Python thread reads through a null pointer while the main thread waits for it."""

import ctypes
import os
import threading

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


waiting = threading.Event()


def collate():
    waiting.wait()
    library.read_field(None)


def wait_for(worker):
    return waiting.set() or worker.join()


worker = threading.Thread(target=collate, name="collator")
worker.start()
wait_for(worker)
