"""Libraries of services, and what is raised when one cannot be used."""

from __future__ import annotations

from typing import Any

from pytracer import _extras
from pytracer._errors import PytracerError


class NotifyError(PytracerError):
    """A report could not be sent or written somewhere."""


def library(name: str, extra: str) -> Any:
    """The module `name`.

    Raises:
        NotifyError: it is not installed; the line names the extra that has it.
    """
    return _extras.library(name, extra, NotifyError)
