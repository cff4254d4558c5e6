"""Indices that are two or more numbers of a file read as one: 852127 is 159 and 13, each of 16 bits.

The smallest and the largest index must both be made of parts that are real rows; by chance, they hardly are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.element_types import BYTES, element_type
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.written_files import place_of, reads_file, writers
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_PLAIN = frozenset({"memmap", "fromfile", "from_file"})
_ROOM = 16  # so many times as many numbers as there are rows can a part hold, at least


class MisreadIds(msgspec.Struct, frozen=True):
    """`words`: both lines, with their types."""

    words: str
    advice: str


def misread_ids(at: FailingLine, low: int, high: int, rows: int) -> MisreadIds | None:
    """None unless the program reads one file only in such a way."""
    found = [item for item in _misread(at) if _is_of_rows(low, item[3], rows) and _is_of_rows(high, item[3], rows)]
    if len(found) != 1:
        return None
    call, spot, read, wrote, there = found[0]
    here = at.place(spot, call.lineno)
    parts = " and ".join(map(str, _parts(high, BYTES[wrote])))
    return MisreadIds(
        f"{capital(here)} reads as {read} what {there} writes as {wrote} ({parts} in one number)",
        f"Pass the type that was written to `{source(call.func)}` at {here}, and convert what it gives.",
    )


def _misread(at: FailingLine) -> Iterator[tuple[ast.Call, Spot, str, str, str]]:
    """Whole numbers that are read as larger ones than one line writes."""
    for file, tree in at.files.items():
        for call in nodes_of(tree):
            if not isinstance(call, ast.Call) or called_name(call) not in _PLAIN or not reads_file(call):
                continue
            spot = place_of(at.files, file, tree, call)
            read, made = element_type(at.slice, call, spot), writers(at.files, at.slice, call, None, spot)
            made = [item for item in made if item.value is not call]
            wrote = element_type(at.slice, made[0].value, made[0].spot) if len(made) == 1 else None
            whole = all(item is not None and "int" in item for item in (read, wrote))
            if read is not None and wrote is not None and whole and BYTES[wrote] < BYTES[read]:
                yield call, spot, read, wrote, str(at.place(made[0].spot, made[0].value.lineno))


def _is_of_rows(number: int, wrote: str, rows: int) -> bool:
    bits = 8 * BYTES[wrote]
    parts = _parts(number, BYTES[wrote])
    return 1 << bits > _ROOM * rows and number >> bits != 0 and all(0 <= part < rows for part in parts)


def _parts(number: int, size: int) -> list[int]:
    """As they lie in the file, the lowest first."""
    found, mask = [number & ((1 << 8 * size) - 1)], (1 << 8 * size) - 1
    while number >> 8 * size:
        number >>= 8 * size
        found.append(number & mask)
    return found
