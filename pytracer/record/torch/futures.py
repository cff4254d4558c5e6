"""Exceptions of tasks of concurrent.futures: a Future keeps them, and shows them to nobody who does not ask."""

from __future__ import annotations

import functools
import sys

from pytracer.blackbox.numbers import ON_TASK
from pytracer.record.bootstrap.dynamo import unseen_frame
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch import exceptions

MOST_ERRORS = 8  # of one process: a program may live with failing tasks

_patches = Patches()
_errors = 0


def install(box: Core) -> None:
    """Wraps what a pool's thread calls with the exception of a task."""
    future = sys.modules["concurrent.futures._base"].Future
    original = future.set_exception

    @functools.wraps(original)
    def set_exception(self: object, exception: BaseException | None) -> object:
        global _errors
        if isinstance(exception, Exception) and _errors < MOST_ERRORS and box.recording:
            _errors += 1
            exceptions.write(box, exception, exception.__traceback__, on_its_way=ON_TASK)
        return original(self, exception)

    unseen_frame(set_exception)
    _patches.replace(future, "set_exception", set_exception)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()
