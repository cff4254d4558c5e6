"""The libraries of the extra `history`, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from pytracer._errors import PytracerError


def library(name: str) -> Any:
    """The module `name`.

    Raises:
        PytracerError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != name.split(".")[0]:
            raise
        raise PytracerError(f"{error.name} is not installed here", 'pip install "pytracer[history]"') from None
