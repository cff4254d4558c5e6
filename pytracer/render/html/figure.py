"""Lanes with items on a common axis, of addresses or of time: what the template draws as SVG, and the script zooms.

Positions are integers from the figure's origin. The template writes percentages of the window that is shown first, so
that the page is complete without JavaScript and as wide as its screen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pytracer._text import size_words

LEAST_PERCENT = 0.2  # as wide as an item is at least drawn
ROW_PIXELS = 18
_TICKS = 5
_FINE_NS = 5_000_000  # a window in which ms do not tell positions apart
_MOST_ROWS = 6


@dataclass(frozen=True)
class Item:
    """Something from `begin` to `end`. `kind` is its class in the style sheet, `details` are its lines when asked for.

    `inner`: the share of it, from its beginning, that is drawn as waiting. `mark`: a point, drawn as a sign.
    """

    begin: int
    end: int
    kind: str
    label: str
    details: tuple[str, ...]
    inner: float = 0.0
    mark: bool = False
    row: int = 0


@dataclass(frozen=True)
class Lane:
    """One line of the figure: its name, what is to be known about it, and what lies on it."""

    name: str
    note: str = ""
    kind: str = ""
    items: tuple[Item, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the items need that would otherwise cover each other."""
        return max((item.row for item in self.items), default=0) + 1

    @property
    def height(self) -> int:
        """In pixels."""
        return self.rows * ROW_PIXELS + 4


@dataclass(frozen=True)
class Figure:
    """`low` and `high` bound everything, `first` is the window that is shown at first. `point`: the address or time
    that is marked in every lane.
    """

    name: str
    title: str
    unit: Literal["bytes", "ns"]
    origin: int
    low: int
    high: int
    first: tuple[int, int]
    lanes: tuple[Lane, ...]
    point: int | None = None
    point_name: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    left_out: str = ""

    def at(self, position: int) -> str:
        """A position as a percentage of the first window."""
        begin, end = self.first
        return _number(100 * (position - begin) / max(end - begin, 1))

    def wide(self, item: Item) -> str:
        """The width of an item as a percentage."""
        begin, end = self.first
        return _number(max(LEAST_PERCENT, 100 * (item.end - item.begin) / max(end - begin, 1)))

    def ticks(self) -> list[tuple[str, str]]:
        """Positions of the axis, in percent, and their names."""
        begin, end = self.first
        places = (begin + (end - begin) * n // _TICKS for n in range(_TICKS))
        return [(self.at(place), self.name_of(place)) for place in places]

    def name_of(self, position: int) -> str:
        """A position in words; the script does the same."""
        if self.unit == "bytes":
            return f"{self.origin + position:#x}"
        digits = 6 if self.first[1] - self.first[0] < _FINE_NS else 3
        return f"{(self.origin + position) / 1e9:.{digits}f} s"

    @property
    def span(self) -> str:
        """How much the first window shows."""
        begin, end = self.first
        return size_words(end - begin) if self.unit == "bytes" else f"{(end - begin) / 1e9:.3f} s"


def _number(value: float) -> str:
    return f"{min(max(value, -1e6), 1e6):.3f}".rstrip("0").rstrip(".")


def packed(items: Iterable[Item], most: int = _MOST_ROWS) -> tuple[Item, ...]:
    """The items in as few rows as they need not to cover each other, at most `most`; the widest first."""
    ends: list[int] = []
    placed: list[Item] = []
    for item in sorted(items, key=lambda item: (item.begin, -item.end)):
        row = next((n for n, end in enumerate(ends) if end <= item.begin), len(ends))
        row = min(row, most - 1)
        if row == len(ends):
            ends.append(item.end)
        else:
            ends[row] = max(ends[row], item.end)
        placed.append(replace(item, row=row))
    return tuple(placed)
