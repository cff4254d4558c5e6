"""Libraries of services: imported when one is used."""

from __future__ import annotations

import importlib
from typing import Any

from pytracer._errors import PytracerError


class NotifyError(PytracerError):
    """A report could not be sent or written somewhere."""


def library(name: str, extra: str) -> Any:
    """The module `name`.

    Raises:
        NotifyError: it is not installed; the line names the extra that has it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        raise NotifyError(f"{missing} is not installed here", f'pip install "pytracer[{extra}]"') from None
