"""Alternate signal stacks on Python's threads, without preload.

Without one, a stack overflow ends the process before any handler can run. With preload pthread_create is interposed,
and every thread has one; here Python's threads have one from the start, others from their first record on.
"""

from __future__ import annotations

import functools
import threading

from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

_patches = Patches()


def install(box: Core) -> None:
    """Wraps the first call of a new thread (threading.py, 3.10 to 3.14: Thread._bootstrap_inner). Not with preload."""
    arm, original = box.lib.pytracer_arm_thread, threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(original)
    def arm_and_run(self: threading.Thread) -> None:
        arm()
        original(self)

    _patches.replace(threading.Thread, "_bootstrap_inner", arm_and_run)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()
