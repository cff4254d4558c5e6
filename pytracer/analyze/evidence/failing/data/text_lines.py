"""The line of a text file that a loop has come to: a reader of csv knows it, else a counter or a list has as many."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans_body

_LIST = Pattern(r"list of (\d+)$")
_LEAVES = (ast.Continue, ast.Break)
_READS = ("readlines", "splitlines", "read")
_READERS = ("reader", "DictReader")
_TAKES = ("next", "readline", "seek", "islice", "pop", "remove", "sort", "shuffle", "reverse")
_FILLS = ("append", "extend", "add", "update", "insert")
_FARTHEST = 6


def line_of_file(at: FailingLine) -> str:
    """`line 72 of lists/train.txt`, or the file alone; nothing where the failing line uses nothing of that file."""
    path, line = at.values.get("text file"), at.values.get("line of the text file")
    if path is None or not any(_opened(at, name) for name in on_the_way(at.scope, at.statement)):
        return ""
    number = int(line) if line is not None and line.isdecimal() and _walks_reader(at) else None
    number = number if number is not None or line is not None else _counted(at)
    return f"line {number} of {path}" if number is not None else path


def on_the_way(scope: Scope, statement: ast.stmt | None) -> dict[str, int]:
    """Variables that a statement uses, and those that they were made of in its function, by their distance."""
    made: dict[str, list[ast.AST]] = {}
    for item in own_nodes(scope):
        for target, value in _bound(item):
            for name in names_in(target):
                made.setdefault(name, []).append(value)
    waiting = [] if statement is None else names_in(_head(statement))
    found: dict[str, int] = {}
    for distance in range(_FARTHEST):
        new = [name for name in waiting if name not in found]
        found |= dict.fromkeys(new, distance)
        waiting = [other for name in new for value in made.get(name, ()) for other in names_in(value)]
    return found


def _head(statement: ast.stmt) -> ast.AST:
    """Of a loop what it goes over: its body is not the failing line."""
    return statement.iter if isinstance(statement, (ast.For, ast.AsyncFor)) else statement


def _bound(item: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    if isinstance(item, ast.Assign):
        yield from ((target, item.value) for target in item.targets)
    elif isinstance(item, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and item.value is not None:
        yield item.target, item.value
    elif isinstance(item, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield item.target, item.iter
    elif isinstance(item, ast.withitem) and item.optional_vars is not None:
        yield item.optional_vars, item.context_expr
    elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _FILLS:
        yield from ((item.func.value, value) for value in item.args)


def _opened(at: FailingLine, name: str) -> bool:
    """Whether a line of the function opens it."""
    values = [value for _, value in lines_that_bind(at.scope, name)]
    return any(isinstance(item, ast.Call) and called_name(item) == "open" for item in values)


def _loop(at: FailingLine) -> ast.For | None:
    """The innermost around the failing line."""
    loops = [item for item in own_nodes(at.scope) if isinstance(item, ast.For) and spans_body(item.body, at.line)]
    return max(loops, key=lambda item: item.lineno, default=None)


def _walks_reader(at: FailingLine) -> bool:
    """Whether the failing line stands in a loop over the reader itself: a list of its rows was read before."""
    loops = [item.iter for item in own_nodes(at.scope) if isinstance(item, ast.For) and spans_body(item.body, at.line)]
    inside = [*nodes_of(at.statement)] if at.statement is not None else []
    loops += [item.iter for item in inside if isinstance(item, ast.comprehension)]
    walked = [over.args[0] if isinstance(over, ast.Call) and len(over.args) == 1 else over for over in loops]
    nexts = [item for item in inside if isinstance(item, ast.Call) and called_name(item) == "next"]
    return bool(nexts) or any(_is_reader(at, item) for item in walked)


def _is_reader(at: FailingLine, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        bound = lines_that_bind(at.scope, node.id)
        return len(bound) == 1 and isinstance(bound[0][1], ast.Call) and called_name(bound[0][1]) in _READERS
    return isinstance(node, ast.Call) and called_name(node) in _READERS


def _counted(at: FailingLine) -> int | None:
    """By the innermost loop over the file around the failing line."""
    loop = _loop(at)
    if loop is None or _takes_others(at):
        return None
    over = loop.iter
    if isinstance(over, ast.Call) and called_name(over) == "enumerate":
        target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
        held = at.value(target) if target is not None else None
        is_plain = len(over.args) == 1 and not over.keywords and _is_file(at, over.args[0])
        return int(held) + 1 if is_plain and held is not None and held.isdecimal() else None
    return _appended(at, loop) if _is_file(at, over) and not _skips(loop) else None


def _is_file(at: FailingLine, node: ast.AST | None, hops: int = 3) -> bool:
    """`fh`, or all lines of it: `fh.readlines()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
        return not node.args and _is_file(at, node.func.value, hops)
    if not isinstance(node, ast.Name) or not hops:
        return False
    bound = lines_that_bind(at.scope, node.id)
    return len(bound) == 1 and (_opened(at, node.id) or _is_file(at, bound[0][1], hops - 1))


def _takes_others(at: FailingLine) -> bool:
    """Whether lines may have been taken otherwise, as by next() before the loop."""
    calls = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call)]
    return any(called_name(item) in _TAKES for item in calls)


def _skips(loop: ast.For) -> bool:
    """Whether a round may leave early."""
    return any(isinstance(part, _LEAVES) for item in loop.body for part in nodes_of(item))


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
