"""A multiprocessing worker dereferences null, another one exits normally: multiprocessing_worker_fault.py METHOD."""

import ctypes
import multiprocessing
import os
import sys


def work(name):
    print(name, os.getpid(), flush=True)
    if name == "faulty":
        ctypes.CDLL(os.environ["FAULTS_LIBRARY"]).read_field(None)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for name in ("good", "faulty"):
        worker = context.Process(target=work, args=(name,))
        worker.start()
        worker.join()
        print(name, "ended with", worker.exitcode, flush=True)
