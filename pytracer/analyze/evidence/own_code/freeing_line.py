"""The line of the program's own C or C++ that freed a block when the process died: what it frees, and by what.

Read as text, without a compiler, from the innermost frame of the program, with what the compiler put into it.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import SourceLine

_MOST_FRAMES = 10  # those of abort() and of the C library come first
_FREES = Pattern(
    r"\bdelete\b\s*(?P<array>\[\s*\])?\s*(?P<deleted>[^;]+);|(?<![\w.>:])(?:std::|::)?free\s*\((?P<freed>[^;]+)\)\s*;"
)
_NAMED_CAST = Pattern(r"^(?:static|reinterpret|const)_cast\s*<[^>]*>\s*\((?P<inner>.*)\)$")
_C_CAST = Pattern(r"^\((?:const\s+)?[\w:\s]+\*+\s*\)\s*(?P<inner>.+)$")
_VARIABLE = Pattern(r"^(?:this->)?(?P<name>\w+(?:(?:->|\.)\w+)*)$")


class FreeingLine(msgspec.Struct, frozen=True):
    """`way` (`delete[]`, `free()`) frees `name` in line `number` of `text`, at `start` in it."""

    way: str
    name: str
    file: str
    number: int
    text: str
    start: int

    @property
    def place(self) -> str:
        """`main.cpp:28`."""
        return f"{self.file}:{self.number}"

    def place_at(self, position: int) -> str:
        """The same of any position in the file."""
        return f"{self.file}:{self.text.count(chr(10), 0, position) + 1}"


def freeing_line(view: ProcessView) -> FreeingLine | None:
    """None where the innermost frame with source of the program's own frees nothing, or more than one thing in a line.

    Of the lines that one frame has, by functions that the compiler put into it, the innermost one that frees.
    """
    for frame in filter(is_of_own_image, own_frames(view)[:_MOST_FRAMES]):
        sources = own_sources(frame)
        if sources:
            return next(filter(None, (_freeing(line, lines) for line, lines in sources)), None)
    return None


def _freeing(line: SourceLine, lines: list[str]) -> FreeingLine | None:
    number = line.line or 0
    found = [*_FREES.finditer(lines[number - 1])]
    name = _freed_name(found[0]) if len(found) == 1 else None
    if name is None:
        return None
    way = "free()" if found[0]["freed"] is not None else "delete[]" if found[0]["array"] else "delete"
    start = sum(len(text) + 1 for text in lines[: number - 1]) + found[0].start()
    return FreeingLine(way, name, short_file(line.file or ""), number, "\n".join(lines), start)


def _freed_name(match: re.Match[str]) -> str | None:
    plain = _VARIABLE.match(bare(match["deleted"] or match["freed"]))
    return plain["name"] if plain is not None else None


def bare(text: str) -> str:
    """An expression without the casts around it."""
    text = text.strip()
    for _ in range(4):
        match = _NAMED_CAST.match(text) or _C_CAST.match(text)
        if match is None:
            return text
        text = match["inner"].strip()
    return text
