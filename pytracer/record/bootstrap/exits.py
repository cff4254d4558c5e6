"""The end by os._exit(), without preload: multiprocessing and DataLoader end their forked processes so.

With preload `_exit` is interposed; other ends run the core's own exit handler.
"""

from __future__ import annotations

import functools
import os
from typing import NoReturn

from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

_patches = Patches()


def install(box: Core) -> None:
    """Wraps os._exit, in forked children, too. Not with preload."""
    leave = os._exit

    @functools.wraps(leave)
    def note_and_leave(status: int) -> NoReturn:
        if box.recording and isinstance(status, int):
            box.lib.pytracer_note_exit(status & 0xFF)
        leave(status)

    _patches.replace(os, "_exit", note_and_leave)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()
