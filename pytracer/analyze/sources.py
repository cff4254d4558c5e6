"""Lines of source around the frames of a report, for a reader who has no copy of the program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime

import msgspec

from pytracer.decode.files import read_all, regular_file
from pytracer.report import job as r

AROUND = 5
_SUFFIXES = (".py", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".S")  # a recording may name anything
_LARGEST_BYTES = 4 << 20
_LONGEST_LINE = 240
_MOST_SNIPPETS = 512


def with_sources(report: r.Report) -> tuple[r.Report, int]:
    """The report with the lines around each frame, and how many frames have none.

    A file that is newer than the run is left out: its lines may be others than those that ran.
    """
    began = _started(report)
    files: dict[str, list[str] | None] = {}
    found: dict[tuple[str, int], r.SourceSnippet] = {}
    missing: set[tuple[str, int]] = set()
    for file, line in dict.fromkeys(_places(report)):
        if file not in files:
            files[file] = _lines(file, began)
        lines = files[file]
        if lines is None or not 0 < line <= len(lines) or len(found) >= _MOST_SNIPPETS:
            missing.add((file, line))
            continue
        first = max(1, line - AROUND)
        text = [item[:_LONGEST_LINE] for item in lines[first - 1 : line + AROUND]]
        found[file, line] = r.SourceSnippet(file=file, line=line, first_line=first, lines=text)
    return msgspec.structs.replace(report, sources=list(found.values())), len(missing)


def _started(report: r.Report) -> float:
    """Seconds since 1970; of a report without that time, files of any age are taken."""
    try:
        return datetime.fromisoformat((report.run.started if report.run else None) or "").timestamp()
    except ValueError:
        return float("inf")


def _lines(file: str, began: float) -> list[str] | None:
    if not file.startswith("/") or not file.endswith(_SUFFIXES):
        return None
    try:
        with regular_file(file, _LARGEST_BYTES, follow=True) as opened:
            status = os.fstat(opened)
            if status.st_mtime > began:
                return None
            return read_all(opened, status.st_size).decode("utf-8", "replace").splitlines()
    except OSError:
        return None


def _places(value: object) -> Iterator[tuple[str, int]]:
    """File and line of every Python frame and native source line, in the report's order."""
    if isinstance(value, (r.PythonFrame, r.SourceLine)):
        if value.file and value.line:
            yield value.file, value.line
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            item = getattr(value, name)
            if isinstance(item, (msgspec.Struct, list)):
                yield from _places(item)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, (msgspec.Struct, list)):
                yield from _places(item)
