"""What a value has of a gradient: on each way on which it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec
from msgspec import structs

from pytracer.analyze.behind import Place


class Level(IntEnum):
    """What a value has of the gradient; `CUT`: it is made of what carries it, without it."""

    NONE = 0
    CUT = 1
    CARRIES = 2


class Value(msgspec.Struct, frozen=True):
    """`ways`: with the line that leaves it out, where one does; `parts`: of a tuple, or of what has names."""

    ways: frozenset[tuple[Level, Place | None]]
    parts: Mapping[object, Value] | None = None

    @property
    def levels(self) -> set[Level]:
        """On all ways."""
        return {level for level, _ in self.ways}

    @property
    def carries(self) -> bool:
        """On each way."""
        return self.levels == {Level.CARRIES}

    @property
    def lacks(self) -> bool:
        """On each way."""
        return self.levels == {Level.NONE}

    def at(self, place: Place) -> Value:
        """The same, where it lacks it by that line."""
        return structs.replace(self, ways=frozenset({(Level.NONE, place)})) if self.lacks else self


NOTHING = Value(frozenset({(Level.NONE, None)}))
CARRIES = Value(frozenset({(Level.CARRIES, None)}))
CUT = Value(frozenset({(Level.CUT, None)}))


def joined(values: Sequence[Value]) -> Value:
    """One of them, which is not known."""
    ways = frozenset(way for item in values for way in item.ways)
    keys = {tuple(item.parts) if item.parts is not None else None for item in values}
    parts = None
    if len(keys) == 1 and values[0].parts is not None:
        parts = {key: joined([item.parts[key] for item in values if item.parts]) for key in values[0].parts}
    return Value(ways, parts)


def made_of(values: Sequence[Value]) -> Value:
    """Of all of them: it lacks the gradient on the ways on which all do."""
    if any(item.carries for item in values):
        return CARRIES
    mixed = [item for item in values if not item.lacks]
    if not mixed:
        placed = {way for item in values for way in item.ways if way[1] is not None}
        return Value(frozenset(placed)) if len(placed) == 1 else NOTHING
    return Value(mixed[0].ways) if len(mixed) == 1 else Value(frozenset({(Level.CARRIES, None), (Level.CUT, None)}))


def part_of(base: Value, key: object) -> Value:
    """By its key or place; of what has no parts the whole."""
    if base.parts is None:
        return Value(base.ways)
    place = key + len(base.parts) if isinstance(key, int) and key < 0 else key
    return base.parts.get(place, Value(base.ways))


def of_parts(parts: Mapping[object, Value]) -> Value:
    """A tuple, or what has names."""
    return Value(made_of([*parts.values()]).ways, parts)


def differ(values: Sequence[Value]) -> bool:
    """Whether one carries the gradient on a way, and another one, or the same part of it, on none."""
    carries = {Level.CARRIES in item.levels for item in values}
    parts = [item.parts for item in values if item.parts is not None]
    keys = {key for item in parts for key in item}
    return len(carries) > 1 or any(differ([item[key] for item in parts if key in item]) for key in keys)


def cut(value: Value) -> Value:
    """As detach() gives it."""
    return CUT if Level.CARRIES in value.levels else value
