"""ucx_crash.py DEATH: dies beside UCX, whose library handles SIGSEGV as soon as it is loaded.

DEATH: null, abort, thread (a null pointer in another thread), sent (to the process), faulthandler (enabled after UCX),
hooks (after UCX has written jumps into libc's mmap and munmap, and torch has allocated), exit.
"""

import contextlib
import ctypes
import faulthandler
import mmap
import os
import signal
import sys
import threading

VM_UNMAPPED = 1 << 17
MIB = 1 << 20

ctypes.CDLL("libucp.so.0")
death = sys.argv[1]


def crash():
    ctypes.CDLL(None).strlen(ctypes.c_void_p(8))


def allocate():
    mmap.mmap(-1, 8 * MIB).close()
    with contextlib.suppress(ImportError):
        import torch

        torch.ones(64 * MIB, dtype=torch.uint8).sum()


def sees_memory():
    events = ctypes.CDLL("libucm.so.0")
    callback = ctypes.CDLL(None).getppid  # a callback in Python would need the GIL inside its own allocator
    print("installed", events.ucm_set_event_handler(VM_UNMAPPED, 0, callback, None) == 0, flush=True)
    allocate()


print("UCX is loaded", flush=True)
if death == "hooks":
    sees_memory()
if death == "abort":
    os.abort()
if death == "sent":
    os.kill(os.getpid(), signal.SIGSEGV)
if death == "thread":
    threading.Thread(target=crash).start()
    threading.Event().wait(60)
if death == "faulthandler":
    faulthandler.enable()
if death != "exit":
    crash()
