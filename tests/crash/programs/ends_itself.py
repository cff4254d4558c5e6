"""Ends in mid-work: ends_itself.py os_exit|thread|library|watchdog|worker|worker_in_order|in_order|actor."""

import ctypes
import multiprocessing
import os
import sys
import threading
import time


def give_up(code):
    os._exit(code)


def watch():
    time.sleep(0.05)
    give_up(4)


def train(how):
    library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
    if how == "os_exit":
        give_up(3)
    elif how == "thread":
        threading.Thread(target=watch).start()
    elif how == "library":
        library.open_device(0)
    elif how == "watchdog":
        library.start_watchdog()
    elif how in ("worker", "worker_in_order"):
        leave = give_up if how == "worker" else sys.exit
        worker = multiprocessing.get_context("fork").Process(target=leave, args=(5,))
        worker.start()
        worker.join()
        sys.exit(worker.exitcode)
    elif how == "actor":
        library["_ZN3ray9QuickExitEv"]()
    elif how == "in_order":
        sys.exit(6)
    time.sleep(20)


train(sys.argv[1])
