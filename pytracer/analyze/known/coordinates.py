"""Operators of torch that make indices of floats unchecked, so that NaN leads out of a tensor: `coordinates.toml`."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

_FILE = Path(__file__).resolve().parent / "coordinates.toml"


class Coordinates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of all `operators`, which the program's `call` runs: its argument `coordinates` has the floats.

    `where`: which values of other arguments leave them unchecked; `default`: what these are where a call passes none.
    `infinite`: with which values infinity counts as well. `why`: behind a colon, why NaN passes.
    """

    operators: tuple[str, ...]
    call: str
    arguments: str
    coordinates: str
    where: dict[str, tuple[str, ...]]
    default: dict[str, str]
    why: str
    infinite: dict[str, tuple[str, ...]] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operator: tuple[Coordinates, ...]


@functools.cache
def coordinates_of() -> dict[str, Coordinates]:
    """By the operator's name without namespace."""
    entries = msgspec.toml.decode(_FILE.read_bytes(), type=_File).operator
    return {name: entry for entry in entries for name in entry.operators}
