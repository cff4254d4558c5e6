"""Every error that pytracer raises on purpose."""

from __future__ import annotations

import os
import traceback


class PytracerError(Exception):
    """What happened and where; `hint` is the next step, `exit_code` what the command line returns."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}; {self.hint}" if self.hint else message


class InputError(PytracerError):
    """A run directory or black box that cannot be read: missing, empty, foreign or newer."""


class RecordingError(PytracerError):
    """Recording could not start or go on."""


class UsageError(PytracerError):
    """Wrong arguments."""

    exit_code = 2


def bug_words(error: BaseException) -> str:
    """Of an error of our own: `a bug in pytracer, KeyError at line.py:12; please report it`."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} at {os.path.basename(place.filename)}:{place.lineno}"
    return f"a bug in pytracer, {where}; please report it"
