"""What a verdict is about, as data: the values of the failing line that are at fault, and the lines that made them so.

The report shows lines of the program with its verdict. Without this it would have to follow all that the failing line
reads, of which most has nothing to do with the failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Protocol, runtime_checkable

import msgspec

from pytracer.analyze.naming import LineWords
from pytracer.report.job import PythonFrame

Place = tuple[str | None, int]  # a file and a line
_FINDINGS = "pytracer.analyze.evidence."


class Behind(msgspec.Struct, frozen=True):
    """What is wrong about the failing line, and where that was made.

    `names`: expressions of that line, as the program writes them, whose values are followed; None: which is not known.
    `lines`: where what is wrong was made. They are shown whatever the values are.
    `elsewhere`: variables that another line reads, whose values are followed from there.
    `sizes`: only the sizes of tensors are wrong, which a change in place keeps.
    `nearest`: that the values of `names` are at fault is but likely, so that only the lines next to them are shown.
    `makers`: calls that make what is wrong, such as `expand`: what they are given is not followed.
    """

    names: tuple[str, ...] | None = ()
    lines: tuple[Place, ...] = ()
    makers: frozenset[str] = frozenset()
    sizes: bool = False
    nearest: bool = False
    elsewhere: tuple[tuple[Place, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, names: Sequence[str | None], *found: object, makers: Iterable[str] = (), sizes: bool = False) -> Behind:
        """Of names, without those that are None, and of whatever names lines: see `places_in`."""
        return cls(tuple(item for item in names if item is not None), places_in(found), frozenset(makers), sizes)


@runtime_checkable
class HasPlaces(Protocol):
    """A finding that names lines otherwise than by its fields."""

    @property
    def places(self) -> tuple[Place, ...]:
        """These lines."""


def places_in(items: Iterable[object]) -> tuple[Place, ...]:
    """The lines that words, frames, findings with such fields, and pairs of file and line name; of None, nothing."""
    found = (place for item in items for place in _places(item))
    return tuple(dict.fromkeys((file, line) for file, line in found if line is not None))


def _places(item: object) -> Iterator[tuple[str | None, int | None]]:
    if isinstance(item, (LineWords, PythonFrame)):
        yield item.file, item.line
    elif isinstance(item, tuple) and [type(part) for part in item] == [str, int]:
        yield item[0], item[1]
    elif isinstance(item, (tuple, list)):
        for part in item:
            yield from _places(part)
    elif isinstance(item, HasPlaces):
        yield from item.places
    elif type(item).__module__.startswith(_FINDINGS):
        for part in _fields(item):
            yield from _places(getattr(item, part))


def _fields(item: object) -> Sequence[str]:
    """Of a finding; none of other objects."""
    if isinstance(item, msgspec.Struct):
        return item.__struct_fields__
    return [part.name for part in fields(item)] if is_dataclass(item) else []
