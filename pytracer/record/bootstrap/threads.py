"""Alternate signal stacks on the threads that Python starts, where nothing is preloaded.

Without one, a stack overflow ends the process before any handler can run. Below preload pthread_create is seen, and
every thread has its stack; here Python's threads have theirs from the start, others from their first record on.
"""

from __future__ import annotations

import functools
import threading

from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

_patches = Patches()


def install(box: Core) -> None:
    """Wraps what a new thread runs first (threading.py, 3.10 to 3.13: Thread._bootstrap_inner). Not below preload."""
    arm, original = box.lib.pytracer_arm_thread, threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(original)
    def arm_and_run(self: threading.Thread) -> None:
        arm()
        original(self)

    _patches.replace(threading.Thread, "_bootstrap_inner", arm_and_run)


def uninstall() -> None:
    """Puts back what is still ours."""
    _patches.put_back()
