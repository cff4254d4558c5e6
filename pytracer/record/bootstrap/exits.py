"""The ends of forked processes, without preload: multiprocessing and DataLoader end them by os._exit().

Their parent has the status of those that a signal ended. With preload `_exit` and `waitpid` are interposed.
"""

from __future__ import annotations

import functools
import os
from typing import NoReturn

from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

_patches = Patches()


def install(box: Core) -> None:
    """Wraps os._exit, in forked children, too, and os.waitpid. Not with preload."""
    leave, wait = os._exit, os.waitpid

    @functools.wraps(leave)
    def note_and_leave(status: int) -> NoReturn:
        if box.recording and isinstance(status, int):
            box.lib.pytracer_note_exit(status & 0xFF)
        leave(status)

    @functools.wraps(wait)
    def wait_and_note(pid: int, options: int) -> tuple[int, int]:
        found, status = wait(pid, options)
        if found > 0 and box.recording:
            box.lib.pytracer_note_wait(found, status)
        return found, status

    _patches.replace(os, "_exit", note_and_leave)
    _patches.replace(os, "waitpid", wait_and_note)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()
