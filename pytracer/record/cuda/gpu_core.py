"""Waits, when a process ends, for the core dump of a device that the driver is still writing (`run --gpu-core`).

The driver reports some errors, failed assertions in particular, before it has written the dump; a process that ends
then leaves a file without its tables (driver 580, torch 2.11).
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import time

from pytracer.record.core import Core
from pytracer.record.cuda.library import CudaLibrary

SECONDS = 60.0
_BEGINS_WITHIN = 2.0  # seconds after the first call that failed
_POLL = 0.05
_ENABLE, _FILE = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_FILE"
_ELF = struct.Struct("<4s36xQ10xHH")  # 64 bits: e_ident, e_shoff, e_shentsize, e_shnum


def install(box: Core, hooks: CudaLibrary) -> None:
    """At the first use of CUDA; nothing where devices write no core dumps."""
    if os.environ.get(_ENABLE) == "1" and os.environ.get(_FILE):
        atexit.register(_wait, box, hooks)


def uninstall() -> None:
    """Waits for nothing at the end."""
    atexit.unregister(_wait)


def _wait(box: Core, hooks: CudaLibrary) -> None:
    try:
        path = os.environ[_FILE].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
        begun = time.monotonic()
        if not os.path.exists(path) and not hooks.ask_streams():
            return
        told = False
        while time.monotonic() - begun < SECONDS:
            complete = _is_complete(path)
            if complete or (complete is None and time.monotonic() - begun > _BEGINS_WITHIN):
                return
            if not told and time.monotonic() - begun > _BEGINS_WITHIN:
                box.announce(f"waiting for the device's core dump, for {SECONDS:.0f} s at most: {path}")
                told = True
            time.sleep(_POLL)
    except Exception:
        box.lib.pytracer_count_hook_error()


def _is_complete(path: str) -> bool | None:
    """Whether the table of sections, which the driver writes last, is there; None: there is no file."""
    try:
        with open(path, "rb") as file:
            head = file.read(_ELF.size)
            if len(head) < _ELF.size:
                return False
            magic, at, row, rows = _ELF.unpack(head)
            return bool(magic == b"\x7fELF" and at and rows and os.fstat(file.fileno()).st_size >= at + row * rows)
    except FileNotFoundError:
        return None
