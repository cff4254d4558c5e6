"""Exceptions that a worker catches and only prints: whoever waits for it learns no more than that it has ended.

A worker is a process of multiprocessing. What the program itself prints is not noted: it goes on, and knows why.
"""

from __future__ import annotations

import functools
import logging
import sys
import traceback
from collections.abc import Callable

from pytracer.blackbox.numbers import ON_PRINT
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch import exceptions

MOST_ERRORS = 4  # of one process: a worker may live with tasks that fail

_patches = Patches()
_installed = False
_errors = 0
_last = 0


def install(box: Core) -> None:
    """Wraps what makes the text of the exception that is being handled. A worker's own workers have that already."""
    global _installed
    if _installed:
        return
    _installed = True
    for name in ("print_exc", "format_exc"):
        _wrap(box, traceback, name)
    _wrap(box, logging.Formatter, "formatException")


def uninstall() -> None:
    """Restores what is still ours."""
    global _installed
    _installed = False
    _patches.put_back()


def _wrap(box: Core, owner: object, name: str) -> None:
    original: Callable[..., object] | None = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def note_and_print(*args: object, **keywords: object) -> object:
        _note(box)
        return original(*args, **keywords)

    _patches.replace(owner, name, note_and_print)


def _note(box: Core) -> None:
    """At most once for an exception: a logger may have several handlers."""
    global _errors, _last
    error = sys.exc_info()[1]
    if not isinstance(error, Exception) or _errors >= MOST_ERRORS or not box.recording or id(error) == _last:
        return
    _errors, _last = _errors + 1, id(error)
    exceptions.write(box, error, error.__traceback__, on_its_way=ON_PRINT)
