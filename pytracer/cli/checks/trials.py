"""What `pytracer doctor` tries in children: python trials.py stacks [DIR] | sleep | seize PID | threads

A program of its own: the standard library only, but for `stacks DIR`, which calls `pytracer.enable(DIR)` first.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable

_SYS_SIGALTSTACK = {"x86_64": 131, "aarch64": 132}
_SS_DISABLE = 2
_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_PR_SET_PTRACER, _WALL = 0x59616D61, 0x40000000
_SECONDS = 5


class _Stack(ctypes.Structure):
    _fields_ = (("ss_sp", ctypes.c_void_p), ("ss_flags", ctypes.c_int), ("ss_size", ctypes.c_size_t))


def stacks(directory: str = "") -> None:
    """Prints, as JSON, which threads have an alternate stack: this one, one of Python's, a raw pthread."""
    if directory:
        import pytracer

        pytracer.enable(directory)
    found: dict[str, bool] = {"main": _has_stack()}

    def look(kind: str) -> None:
        found[kind] = _has_stack()

    thread = threading.Thread(target=look, args=("python",))
    thread.start()
    thread.join()
    _raw_thread(lambda: look("raw"))
    print(json.dumps(found))


def sleep() -> None:
    """Lets any process trace this one if Yama permits, reports that, and waits to be killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1 & (1 << 64) - 1), 0, 0, 0)
    print("ready", flush=True)
    signal.alarm(2 * _SECONDS)
    signal.pause()


def seize(pid: str) -> None:
    """Stops and releases a sibling as the launcher's helper does; prints the error number, 0 on success."""
    signal.alarm(_SECONDS)  # a process that never stops must not block this one
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(_PTRACE_SEIZE, int(pid), None, None) or libc.ptrace(_PTRACE_INTERRUPT, int(pid), None, None):
        print(ctypes.get_errno())
        return
    os.waitpid(int(pid), _WALL)
    libc.ptrace(_PTRACE_DETACH, int(pid), None, None)
    print(0)


def threads() -> None:
    """Dies of a null pointer beside a second thread."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=time.sleep, args=(2 * _SECONDS,), daemon=True).start()
    ctypes.string_at(0)


def _has_stack() -> bool:
    """Asks the kernel, because the interposed sigaltstack returns what the program itself has set."""
    number = _SYS_SIGALTSTACK.get(platform.machine())
    if number is None:
        raise SystemExit(f"the number of sigaltstack on {platform.machine()} is not known here")
    stack = _Stack()
    if ctypes.CDLL(None).syscall(ctypes.c_long(number), None, ctypes.byref(stack)):
        raise SystemExit("sigaltstack failed")
    return not stack.ss_flags & _SS_DISABLE


def _raw_thread(function: Callable[[], None]) -> None:
    """Runs `function` on a thread created by pthread_create itself, as OpenMP and other C++ code do."""
    libc = ctypes.CDLL(None)
    start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: function())
    thread = ctypes.c_ulong()
    if libc.pthread_create(ctypes.byref(thread), None, start, None):
        raise SystemExit("pthread_create failed")
    libc.pthread_join(thread, None)


_TRIALS: dict[str, Callable[..., None]] = {"stacks": stacks, "sleep": sleep, "seize": seize, "threads": threads}

if __name__ == "__main__":
    word, *arguments = sys.argv[1:]
    _TRIALS[word](*arguments)
