"""Where the values of a variable were set, by the source: the line that made them, and those that wrote into it since.

Followed through calls that keep the values (`.cuda()`, `.unsqueeze(1)`, x[a:b]), through loops over what a function
of the program returns, and to the only call of a function that is no longer on the stack. Nothing is run.
"""

from __future__ import annotations

import ast

import msgspec
from msgspec import structs

from pytracer._text import list_words
from pytracer.analyze.evidence.cuda.value_steps import Place, Program, before, kept, result
from pytracer.analyze.evidence.failing.expressions import whole
from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import short_file

_HOPS = 12
_MOST_LINES = 3
_LONGEST = 70


class SetLine(msgspec.Struct, frozen=True):
    """`labels.py:18`, and its text. `written`: the number that it puts into elements of what was made before."""

    place: str
    text: str
    written: int | None = None


class ValueSource(msgspec.Struct, frozen=True):
    """Lines that set a variable; the first one made it. `computed`: what the program's function returns that did."""

    name: str
    lines: tuple[SetLine, ...]
    computed: SetLine | None = None

    def words(self, argument: str, *, text: bool) -> str:
        """`` `labels` is set at a.py:18 (`labels = ...`) and a.py:20 (`labels[17] = 255`) ``; with or without text."""
        told = [
            f"{line.place} (`{line.text}`)" if text or place else line.place for place, line in enumerate(self.lines)
        ]
        after = f", computed at {self.computed.place}" if self.computed is not None else ""
        after += f" (`{self.computed.text}`)" if self.computed is not None and text else ""
        if self.name == argument:
            return f"`{self.name}` is set at {list_words(told, _MOST_LINES)}{after}"
        return f"`{argument}` is made from `{self.name}`, set at {list_words(told, _MOST_LINES)}{after}"


def value_source(program: Program, node: ast.AST) -> ValueSource | None:
    """Of the variable that an expression takes its values from; None: it is computed, or nothing is known."""
    spot = program.slice.spot(0)
    found: ValueSource | None = None
    place: Place | None = (node, spot) if spot is not None else None
    for _ in range(_HOPS):
        if place is None:
            break
        inner, spot = kept(place[0]), place[1]
        name = variable(inner)
        if name is None:
            place = result(program, inner, spot)
            if place is None and found is not None and isinstance(inner, ast.expr):
                found = _computed(found, inner, spot)
            continue
        lines = _lines(program, name, spot)
        if lines:
            found = ValueSource(name, lines)
        if len(lines) > 1:
            break
        place = before(program, name, spot)
    return found


def _computed(found: ValueSource, node: ast.expr, spot: Spot) -> ValueSource:
    """With what a function returns that the variable was set by, if that is on another line."""
    line = SetLine(f"{short_file(spot.file)}:{node.lineno}", _text(node))
    if spot.call is None or line.place in [item.place for item in found.lines]:
        return found
    return structs.replace(found, computed=line)


def _text(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0].rstrip(":")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _lines(program: Program, name: str, spot: Spot) -> tuple[SetLine, ...]:
    """Those of a scope that bind it or write into it before a line, or in a round before; none where they are many.

    Where one line is the last to have bound it, the others don't count.
    """
    last = last_binding(spot.scope, name, spot.line)
    nodes = [*own_nodes(spot.scope)]
    begin = last[0] if last is not None else 0
    rounds = [
        (item.lineno, item.end_lineno or 0)
        for item in nodes
        if isinstance(item, LOOPS) and begin < item.lineno <= spot.line <= (item.end_lineno or 0)
    ]
    bound = {line for line, _, _ in bindings_of(spot.scope, name)} if last is None else {begin}
    found: dict[int, ast.stmt] = {}
    for item in nodes:
        line = getattr(item, "lineno", 0)
        before_it = begin <= line < spot.line or any(first <= line <= end for first, end in rounds)
        if isinstance(item, ast.stmt) and before_it and (line in bound or _writes(item, name)):
            found.setdefault(line, item)
    if len(found) > _MOST_LINES or not bound & {*found}:
        return ()
    return tuple(
        SetLine(
            f"{short_file(spot.file)}:{line}", _text(item), _written(program, item, structs.replace(spot, line=line))
        )
        for line, item in sorted(found.items())
    )


def _written(program: Program, statement: ast.stmt, spot: Spot) -> int | None:
    """255 of `labels[17] = 255`."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Subscript):
        return None
    return whole(program.slice.made(statement.value, spot, calls=True).node)


def _writes(statement: ast.stmt, name: str) -> bool:
    """`labels[17] = 255`, `labels += 1`, `labels.clamp_(0)`."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign):
        targets = [statement.target]
        if variable(statement.target) == name:
            return True
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        func = statement.value.func
        if isinstance(func, ast.Attribute) and func.attr.endswith("_") and not func.attr.endswith("__"):
            return variable(kept(func.value)) == name
    return any(isinstance(item, ast.Subscript) and variable(item.value) == name for item in targets)
