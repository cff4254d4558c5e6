"""Declares the functions of our C interfaces to ctypes, which would take every result for an int."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

CType = type[object]  # one of ctypes, whose types have no common public base


class Function(NamedTuple):
    """One function; `result` None: it returns nothing."""

    name: str
    result: CType | None
    arguments: tuple[CType, ...] = ()


def declare(library: ctypes.CDLL, prefix: str, functions: Sequence[Function]) -> None:
    """Each as `library.<prefix><name>`.

    Raises:
        AttributeError: the library has no such function.
    """
    for function in functions:
        found = getattr(library, prefix + function.name)
        found.restype, found.argtypes = function.result, function.arguments
