"""Records of a snapshot by their type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pytracer.decode.types.snapshot import Event

_T = TypeVar("_T")


def data_of(events: Iterable[Event], kind: type[_T]) -> list[_T]:
    """The data of the records of one type, in order."""
    return [event.data for event in events if isinstance(event.data, kind)]
