"""Iterators that keep what they gave out: itertools.cycle() has all items of the first round, for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.name_origins import follow
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_GIVEN = Pattern(r"\bnext\(\s*([A-Za-z_]\w*)\s*[,)]")
_LOOP = Pattern(r"^(?:async )?for .+? in (.+):$")
_NAMES = Pattern(r"\b[A-Za-z_]\w*\b(?!\()")
_QUOTED = 60
_CYCLE = "itertools.cycle"


class KeepingIterator(msgspec.Struct, frozen=True):
    """An itertools.cycle() that gave what a line took. `frame`: where it was made, with its `text`."""

    frame: PythonFrame
    text: str

    @property
    def subject(self) -> str:
        """``itertools.cycle() at train.py:40 keeps all items of its first round``."""
        place = f"{short_file(self.frame.file)}:{self.frame.line}"
        return f"itertools.cycle() at {place} keeps all items of its first round"

    @property
    def advice(self) -> str:
        """What to write in its place."""
        return (
            f"itertools.cycle() at line {self.frame.line} (`{shortened(self.text, _QUOTED)}`) keeps all items of the "
            "first round, and gives the same ones again: take a new iterator in each round instead (`while True: yield "
            "from loader`, or iter(loader) anew on StopIteration), which also shuffles and augments anew."
        )


def keeping_iterator(snapshot: Snapshot, stack: Sequence[PythonFrame], line: PythonFrame) -> KeepingIterator | None:
    """What the `line` takes its items from, if that is a cycle().

    Args:
        snapshot: The process.
        stack: Frames of the program, innermost first; callers of `line` are followed where it is among them.
        line: One that took many items.
    """
    text = line_text(snapshot, line)
    if text is None:
        return None
    if _is_cycle(snapshot, line):
        return KeepingIterator(line, text)
    places = [n for n, item in enumerate(stack) if (item.file, item.function) == (line.file, line.function)]
    frames = [line, *(stack[places[0] + 1 :] if places else ())]
    for name in _taken_from(text):
        found = follow(snapshot, frames, name, None)
        if found is not None and _is_cycle(snapshot, found.frame):
            return KeepingIterator(found.frame, found.text)
    return None


def _is_cycle(snapshot: Snapshot, frame: PythonFrame) -> bool:
    """Whether the line calls the function of itertools: a program may have one of that name, which keeps nothing."""
    tree = syntax_tree(snapshot, frame)
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)] if tree is not None else []
    return any(
        tree is not None and spans(item, frame.line or 0) and imported_as(tree, item.func) == _CYCLE for item in calls
    )


def _taken_from(text: str) -> Iterator[str]:
    yield from _GIVEN.findall(text)
    loop = _LOOP.match(text.split("  #")[0].strip())
    if loop is not None:
        yield from _NAMES.findall(loop[1])
