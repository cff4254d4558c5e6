"""What a variable that counts caught errors was on a rank at its end, as a crash, an exception or a stop left it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.collectives.standing_line import line_of_end
from pytracer.analyze.evidence.syntax.error_counts import ErrorCount, error_counts
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of
from pytracer.analyze.view import ProcessView


class HeldCount(msgspec.Struct, frozen=True):
    """`expression` as in Python, in a function of `file` that was at `line`."""

    expression: str
    value: int
    file: str | None
    line: int | None


def count_on(view: ProcessView, file: str, tree: ast.Module, count: ErrorCount) -> int | None:
    """What it was on a rank at its end; None where that is not recorded."""
    scope = scope_of(tree, count.line)
    owner = class_around(tree, scope) if count.name.startswith("self.") else None
    for held in _held_counts(view):
        there = scope_of(tree, held.line) if held.file == file and held.line is not None else None
        if there is None:
            continue
        if owner is None:
            same = held.expression == count.name and there is scope
        elif class_around(tree, there) is owner:
            same = held.expression == count.name
        else:  # `trainer.skipped`, of what no other class has
            same = count.alone and held.expression.endswith(count.name.removeprefix("self"))
        if same:
            return held.value
    return None


def caught_none(view: ProcessView, file: str, tree: ast.Module, handler: ast.ExceptHandler) -> bool:
    """Whether a handler is known not to have run on a rank: what counts its errors is still 0 there."""
    return any(item.whole and count_on(view, file, tree, item) == 0 for item in error_counts(tree, handler))


def _held_counts(view: ProcessView) -> Iterator[HeldCount]:
    """Whole numbers of its frames, the innermost first."""
    crash = view.crash
    for number in (*crash.numbers, *crash.other_numbers) if crash is not None else ():
        yield HeldCount(number.expression, number.value, number.frame.file, number.frame.line)
    at = line_of_end(view)
    for depth, frame in enumerate(at.frames) if at is not None else ():
        held = at.values_at(depth) if at is not None else {}
        for name, value in held.items():
            if value.isdecimal():
                yield HeldCount(name, int(value), frame.file, frame.line)
