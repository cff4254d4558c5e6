"""The source of a native function, where it is still here and older than the library that was built from it.

Read as text, without a compiler: the local arrays that a function declares, and their sizes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.fault_function import HEADERS
from pytracer.analyze.evidence.own_code.c_text import closing, without_texts
from pytracer.analyze.naming import short_file
from pytracer.decode.files import read_all, regular_file
from pytracer.report.job import NativeFrame, SourceLine

SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".cuh")
_LARGEST_BYTES = 4 << 20
_MOST_LINES = 400  # of a function
_ARRAY = Pattern(
    r"^\s+(?:const\s+)?((?:unsigned\s+|struct\s+)?[A-Za-z_][\w:]*)\s+([A-Za-z_][^;(){}=]*\[[^;(){}=]*)[;=]"
)
_ITEM = Pattern(r"\b([A-Za-z_]\w*)\s*((?:\[\s*[\w+*/ -]+\s*\])+)")
_MACRO = Pattern(r"^\s*#\s*define\s+([A-Za-z_]\w*)\s+\(?\s*(\d+)\s*\)?\s*(?:/[/*].*)?$")
_NOT_TYPES = ("return", "delete", "goto", "case", "static", "typedef", "else", "extern")


class LocalArray(msgspec.Struct, frozen=True):
    """`char name[96]`; `size`: of its first dimension, and `count` of all; None where these are not known."""

    type: str
    name: str
    bounds: str
    size: int | None
    place: str
    count: int | None = None

    @property
    def words(self) -> str:
        """`` `double mean[MAX_CHANNELS]` (64, norm.c:4) ``."""
        known = f"{self.size}, " if self.size is not None and str(self.size) not in self.bounds else ""
        return f"`{self.type} {self.name}{self.bounds}` ({known}{self.place})"


def local_arrays(frame: NativeFrame) -> list[LocalArray]:
    """Those that the function of a frame declares, in order; empty where its source is not known.

    Up to the running line; all, of a function that is not beyond its first brace: the stack is taken for them there.
    """
    line = next((item for item in frame.lines or () if item.file and item.line and not HEADERS.search(item.file)), None)
    lines = _lines(frame, line)
    if lines is None or line is None or line.line is None:
        return []
    macros = {match[1]: int(match[2]) for text in lines if (match := _MACRO.match(text)) is not None}
    begin, until = _beginning(lines, line.line), line.line
    if begin < until and not any("{" in text for text in lines[begin : until - 1]):
        until = _end(lines, begin) or until
    return [
        item
        for number in range(begin, until)
        for item in _declared(lines[number], f"{short_file(line.file or '')}:{number + 1}", macros)
    ]


def _end(lines: list[str], begin: int) -> int | None:
    """The number of the line where the first brace of a function closes."""
    text = without_texts("\n".join(lines[begin : begin + _MOST_LINES]))
    end = closing(text, text.index("{")) if "{" in text else None
    return begin + text.count("\n", 0, end) + 1 if end is not None else None


def own_source(frame: NativeFrame) -> tuple[SourceLine, list[str]] | None:
    """The innermost line of a frame that is in no header, and all lines of its file; None where these are not known."""
    line = next((item for item in frame.lines or () if item.file and item.line and not HEADERS.search(item.file)), None)
    lines = _lines(frame, line)
    return (line, lines) if line is not None and lines is not None else None


def own_sources(frame: NativeFrame) -> list[tuple[SourceLine, list[str]]]:
    """The same of each line of a frame, the innermost first: of functions that the compiler put into one another."""
    own = [item for item in frame.lines or () if item.file and item.line and not HEADERS.search(item.file)]
    return [(item, lines) for item in own if (lines := _lines(frame, item)) is not None]


def source_text(frame: NativeFrame) -> str | None:
    """The whole file that a frame's function is written in; None where it is not known."""
    source = own_source(frame)
    return "\n".join(source[1]) if source is not None else None


def own_lines(frame: NativeFrame) -> tuple[str, list[tuple[int, str]]] | None:
    """The file of a frame's function, `ops.cpp`, and the function's lines up to the running one, with their numbers."""
    source = own_source(frame)
    if source is None or source[0].line is None:
        return None
    line = source[0]
    found = [(number, text) for number, text in lines_from(frame, line, _MOST_LINES) if number <= (line.line or 0)]
    return (short_file(line.file or ""), found) if found else None


def function_lines(frame: NativeFrame) -> tuple[list[tuple[int, str]], int] | None:
    """All lines of the function that local_arrays() reads, with their numbers, and the number of the running one."""
    line = next((item for item in frame.lines or () if item.file and item.line), None)
    lines = _lines(frame, line)
    if lines is None or line is None or line.line is None:
        return None
    begin = _beginning(lines, line.line)
    end = next((at for at in range(max(begin + 1, line.line - 1), len(lines)) if lines[at].startswith("}")), len(lines))
    return [(at + 1, lines[at]) for at in range(begin, end)], line.line


def lines_from(frame: NativeFrame, line: SourceLine, most: int) -> list[tuple[int, str]]:
    """The lines of a function with their numbers, from the one at `line` or its beginning on; empty if not known."""
    lines = _lines(frame, line)
    if lines is None or line.line is None:
        return []
    begin = _beginning(lines, line.line) if line.line < len(lines) else line.line - 1
    end = next((at for at in range(begin + 1, len(lines)) if lines[at].startswith("}")), len(lines))
    return [(at + 1, lines[at]) for at in range(begin, min(end, begin + most))]


def lines_of(library: str, path: str) -> list[str] | None:
    """Of a file that a library may have been built from; None as in `_lines`."""
    return _lines(NativeFrame(image=library), SourceLine(file=path, line=1))


def lines_before(time_ns: int, path: str) -> list[str] | None:
    """Of a file that has not changed since; None where it has, or is not here."""
    if not path.endswith(SUFFIXES):  # a recording may name anything
        return None
    try:
        with regular_file(path, _LARGEST_BYTES, follow=True) as file:
            status = os.fstat(file)
            if status.st_mtime_ns > time_ns:
                return None
            return read_all(file, status.st_size).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return None


def _lines(frame: NativeFrame, line: SourceLine | None) -> list[str] | None:
    """The file; None where it is not here, or is newer than the library, so that the lines may be others."""
    if line is None or not line.file or line.line is None or not line.file.startswith("/") or not frame.image:
        return None
    try:
        built_ns = os.stat(frame.image).st_mtime_ns
    except (OSError, ValueError):
        return None
    lines = lines_before(built_ns, line.file)
    return lines if lines is not None and line.line <= len(lines) else None


def _beginning(lines: list[str], line: int) -> int:
    """The index of the line at which the function around a line begins: the last one that begins a definition."""
    least = max(line - _MOST_LINES, 0)
    for number in range(line - 1, least - 1, -1):
        if lines[number][:1].isalpha() and "(" in lines[number] and not lines[number].rstrip().endswith(";"):
            return number
    return line


def _declared(text: str, place: str, macros: dict[str, int]) -> Iterator[LocalArray]:
    match = _ARRAY.match(text)
    if match is None or match[1].split()[0] in _NOT_TYPES:
        return
    for item in _ITEM.finditer(match[2]):
        bounds = item[2].replace(" ", "")
        each = bounds[1:-1].split("][")
        sizes = [int(part) if part.isdecimal() else macros.get(part) for part in each]
        known = [part for part in sizes if part is not None]
        count = math.prod(known) if len(known) == len(sizes) else None
        yield LocalArray(match[1], item[1], bounds, sizes[0], place, count)
