"""A line of the user's program as it ran, which called an operator written in C++.

`tensor.set_(other)` leaves no Python frame of its own: the frame that freed the old memory is the user's line, and only
its text shows why. It is quoted only if the file has not changed since the process began.
"""

from __future__ import annotations

import ast
import functools
import os
import re

from pytracer._patterns import Pattern
from pytracer._started_package import text_of
from pytracer.decode.files import read_all, regular_file
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_LARGEST_BYTES = 4 << 20
_LONGEST = 160
_SUFFIX = ".py"
TEXT = "<string>"
_MAKES = Pattern(r"\b(?:exec|eval|compile)\s*\(")


def syntax_tree(snapshot: Snapshot, frame: PythonFrame | None) -> ast.Module | None:
    """The program of a frame's file; None as in line_text, and for what this Python cannot parse."""
    lines = _lines(snapshot, frame)
    return _parsed(b"\n".join(lines)) if lines is not None else None


@functools.lru_cache(maxsize=32)  # beyond the files of a program that are followed
def _parsed(text: bytes) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def is_own_text(snapshot: Snapshot, frame: PythonFrame | None) -> bool:
    """Whether a frame is of the program that the command line of its process has, by `python -c`."""
    return frame is not None and frame.file == TEXT and bool(_text_lines(snapshot, frame))


def _text_lines(snapshot: Snapshot, frame: PythonFrame) -> list[bytes]:
    """None of a text that makes more code of that name, or of a function that is not in it: a library's."""
    text = text_of(snapshot.argv)
    name = (frame.function or "").rpartition(".")[2]
    if text is None or len(text) > _LARGEST_BYTES or _MAKES.search(text):
        return []
    is_there = name.startswith("<") or re.search(rf"\bdef {re.escape(name)}\b", text) is not None
    return text.encode("utf-8", "replace").split(b"\n") if is_there else []


def line_text(snapshot: Snapshot, frame: PythonFrame | None) -> str | None:
    """The text of a frame's line without its indentation.

    Args:
        snapshot: The process that ran it.
        frame: Where.

    Returns:
        None when the file is not here, or is newer than the process, so that the line may be another one.
    """
    lines = _lines(snapshot, frame)
    return (_text(lines[frame.line - 1]) or None) if lines is not None and frame is not None and frame.line else None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:_LONGEST]


def _lines(snapshot: Snapshot, frame: PythonFrame | None) -> list[bytes] | None:
    """The file of a frame whose line is in it; of `python -c` the text of the command line."""
    if frame is None or not frame.file or not frame.line:
        return None
    if frame.file == TEXT:
        lines = _text_lines(snapshot, frame)
        return lines if 0 < frame.line <= len(lines) else None
    if not frame.file.startswith("/"):
        return None
    if not frame.file.endswith(_SUFFIX):  # a recording may name anything
        return None
    try:
        with regular_file(frame.file, _LARGEST_BYTES, follow=True) as file:
            status = os.fstat(file)
            if status.st_mtime_ns > snapshot.created_wall_ns:
                return None
            lines = read_all(file, status.st_size).splitlines()
    except OSError:
        return None
    return lines if 0 < frame.line <= len(lines) else None
