"""Every error that pytracer raises on purpose."""

from __future__ import annotations


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
