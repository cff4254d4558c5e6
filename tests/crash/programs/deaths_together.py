"""Argument: how many. Workers that die at the same moment, each with a second thread."""

import ctypes
import multiprocessing
import sys
import threading
import time


def work(start):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    start.wait()
    ctypes.string_at(0)


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    count = int(sys.argv[1])
    start = context.Barrier(count)
    workers = [context.Process(target=work, args=(start,)) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers])
