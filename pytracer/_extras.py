"""Libraries of the optional extras: imported when one is used."""

from __future__ import annotations

import importlib
from typing import Any

from pytracer._errors import PytracerError


def library(name: str, extra: str, error: type[PytracerError] = PytracerError) -> Any:
    """The module `name`.

    Args:
        name: of the module.
        extra: the extra of pytracer that has it.
        error: what to raise.

    Raises:
        error: it is not installed; the line names the extra.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise error(f"{missing.name or name} is not installed here", f'pip install "pytracer[{extra}]"') from None
