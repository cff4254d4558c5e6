"""A worker thread crashes while the main thread waits; see waits.c.  waits.py KIND [abort]"""

from __future__ import annotations

import ctypes
import os
import queue
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

LONG = 1000
TID = threading.get_native_id()
LIBC = ctypes.PyDLL(None) if len(sys.argv) > 2 else ctypes.CDLL(None)  # PyDLL: the GIL is held while it dies


ready = False


def asleep() -> bool:
    return ready and Path(f"/proc/self/task/{TID}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def dies() -> None:
    seen = 0  # several times: it may sleep for the GIL
    while seen < 4:
        time.sleep(0.002)
        seen = seen + 1 if asleep() else 0
    if len(sys.argv) > 2:
        LIBC.abort()
    LIBC.strlen(ctypes.c_void_p(8))


def reads_pipe() -> None:
    os.read(os.pipe()[0], 1)


def accepts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()


def waits_for_child() -> None:
    # `read` ends when this process does, which holds the other end of the pipe.
    subprocess.Popen(["sh", "-c", "read x"], stdin=subprocess.PIPE).wait()


def selects_by_selector() -> None:
    ours, _theirs = socket.socketpair()
    selector = selectors.DefaultSelector()
    selector.register(ours, selectors.EVENT_READ)
    selector.select(LONG)


def acquires() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def joins() -> None:
    thread = threading.Thread(target=time.sleep, args=(LONG,), daemon=True)
    thread.start()
    thread.join()


WAITS = {
    "pause": signal.pause,
    "sleep": lambda: time.sleep(LONG),
    "event": lambda: threading.Event().wait(LONG),
    "sigtimedwait": lambda: signal.sigtimedwait([signal.SIGUSR1], LONG),
    "select": lambda: select.select([], [], [], LONG),
    "selector": selects_by_selector,
    "poll": lambda: select.poll().poll(LONG * 1000),
    "queue": lambda: queue.Queue().get(),
    "lock": acquires,
    "join": joins,
    "read": reads_pipe,
    "accept": accepts,
    "child": waits_for_child,
}

waiter = WAITS[sys.argv[1]]
threading.Thread(target=dies, daemon=True).start()
ready = True
waiter()
print("main goes on")
