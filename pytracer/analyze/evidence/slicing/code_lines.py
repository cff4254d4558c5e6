"""A line of the program as the report shows it: its statement on one line, its function, and its place in the order."""

from __future__ import annotations

import ast

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import named_function_around, qualified_name
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import CodeLine, PythonFrame

_LONGEST = 240
_DEEPEST = 1 << 30
_HEADED = (
    *(ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.ExceptHandler),
)
Shown = ast.stmt | ast.ExceptHandler


def code_line(snapshot: Snapshot, spot: Spot, statement: Shown) -> CodeLine:
    """The statement with its function: by its place, as a value may be looked for in the module or in a lambda."""
    function = named_function_around(spot.tree, statement)
    name = qualified_name(spot.tree, function) if function is not spot.tree else None
    inside = _line_of_text(snapshot, spot, statement)
    text = shortened(_head(snapshot, spot, statement) if inside is None else inside, _LONGEST)
    return CodeLine(file=spot.file, line=statement.lineno if inside is None else spot.line, function=name, text=text)


def _line_of_text(snapshot: Snapshot, spot: Spot, statement: Shown) -> str | None:
    """The spot's own line where it lies within a string of several lines: C that the program compiles."""
    for item in nodes_of(statement):
        is_text = isinstance(item, ast.Constant) and isinstance(item.value, str)
        if is_text and item.lineno < spot.line <= (item.end_lineno or 0):  # type: ignore[attr-defined]
            return line_text(snapshot, PythonFrame(file=spot.file, line=spot.line))
    return None


def _head(snapshot: Snapshot, spot: Spot, statement: Shown) -> str:
    """On one line, as it is written where it fits there; of a loop or branch without its body."""
    if isinstance(statement, _HEADED) or statement.end_lineno == statement.lineno:
        found = line_text(snapshot, PythonFrame(file=spot.file, line=statement.lineno))
        if found is not None and (not isinstance(statement, _HEADED) or found.endswith(":")):
            return found
    if isinstance(statement, _HEADED):
        return " ".join(ast.unparse(statement).splitlines()[0].split())
    return " ".join(ast.unparse(statement).split())


def order(item: tuple[int | None, CodeLine], failing: str | None) -> tuple[int, bool, str, int]:
    """Those of functions that had returned, then of the outer ones of those that had not; lines of a file together."""
    depth, code = item
    return -depth if depth is not None else -_DEEPEST, code.file == failing, code.file or "", code.line or 0
