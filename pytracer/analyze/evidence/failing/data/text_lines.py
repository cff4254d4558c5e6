"""The line of a text file that a loop has come to: a reader of csv knows it, else a counter or a list has as many."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans_body

_LIST = Pattern(r"list of (\d+)$")
_LEAVES = (ast.Continue, ast.Break)
_READS = ("readlines", "splitlines", "read")


def line_of_file(at: FailingLine) -> str:
    """`line 72 of lists/train.txt`, or the file alone; nothing where no file is known."""
    path, line = at.values.get("text file"), at.values.get("line of the text file")
    if path is None:
        return ""
    number = int(line) if line is not None and line.isdecimal() else _counted(at)
    return f"line {number} of {path}" if number is not None else path


def _counted(at: FailingLine) -> int | None:
    """By the innermost loop over the file around the failing line."""
    loops = [item for item in own_nodes(at.scope) if isinstance(item, ast.For) and spans_body(item.body, at.line)]
    loop = max(loops, key=lambda item: item.lineno, default=None)
    if loop is None:
        return None
    over = loop.iter
    if isinstance(over, ast.Call) and called_name(over) == "enumerate":
        target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
        held = at.value(target) if target is not None else None
        is_plain = len(over.args) == 1 and not over.keywords and _is_file(over.args[0])
        return int(held) + 1 if is_plain and held is not None and held.isdecimal() else None
    return _appended(at, loop) if _is_file(over) and not _skips(at, loop) else None


def _is_file(node: ast.expr) -> bool:
    """`fh`, or `fh.readlines()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
        return not node.args
    return isinstance(node, ast.Name)


def _skips(at: FailingLine, loop: ast.For) -> bool:
    """Whether lines may have been taken otherwise: by next() before it, or in rounds that leave early."""
    nexts = (item for item in own_nodes(at.scope) if isinstance(item, ast.Call))
    leaves = any(isinstance(part, _LEAVES) for item in loop.body for part in nodes_of(item))
    return leaves or any(called_name(item) in ("next", "readline") for item in nexts)


def _appended(at: FailingLine, loop: ast.For) -> int | None:
    """One more than the items of a list that began empty and that each round adds one to, behind the failing line."""
    for item in loop.body:
        call = item.value if isinstance(item, ast.Expr) and item.lineno > at.line else None
        if not isinstance(call, ast.Call) or called_name(call) != "append" or not isinstance(call.func, ast.Attribute):
            continue
        name = variable(call.func.value)
        held = _LIST.match(at.value(name) or "") if name is not None else None
        if name is None or held is None:
            continue
        bound = lines_that_bind(at.scope, name)
        begun = bound[0][1] if len(bound) == 1 and bound[0][0] < loop.lineno else None
        adds = [
            part
            for part in own_nodes(at.scope)
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and variable(part.func.value) == name
        ]
        if isinstance(begun, ast.List) and not begun.elts and len(adds) == 1:
            return int(held[1]) + 1
    return None
