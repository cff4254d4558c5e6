"""The mark at which who takes from a queue stops: as its lines test it, and as the lines that fill the queue put it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.leaving import Obstacle, obstacles
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, scope_of, spans, spans_body
from pytracer.analyze.naming import LineWords

_LONGEST = 50
_EQUAL = (ast.Is, ast.Eq, ast.IsNot, ast.NotEq)
_PUT = ("put", "put_nowait")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_A_PASS_IN_ANOTHER = 2  # loops


class Taking(msgspec.Struct, frozen=True):
    """A line that takes from a queue for as long as it takes. `mark`: where the taker stops; None: not known."""

    queue: ast.expr
    mark: str | None


class PutMark(msgspec.Struct, frozen=True):
    """The line that puts the mark, and what it is reached by only: its `if`, its `except`, or what leaves before."""

    text: str
    line: int
    only: Obstacle


def taking(tree: ast.Module, line: int) -> Taking | None:
    """Of `q.get()` and `iter(q.get, None)`; None where a line does not wait without a limit, or takes from several."""
    found = [item for item in nodes_of(scope_of(tree, line)) if isinstance(item, ast.Call) and spans(item, line)]
    gets = [item for item in found if called_name(item) == "get" and isinstance(item.func, ast.Attribute)]
    if len(gets) == 1:
        call = gets[0]
        return Taking(call.func.value, _tested(tree, line, call)) if _has_no_limit(call) else None  # type: ignore[attr-defined]
    rounds = [item for item in found if called_name(item) == "iter" and len(item.args) == 2]
    taken = rounds[0].args[0] if len(rounds) == 1 and not gets else None
    if not isinstance(taken, ast.Attribute) or taken.attr != "get":
        return None
    return Taking(taken.value, ast.unparse(rounds[0].args[1]))


def put_mark(tree: ast.Module, puts: list[ast.Call], mark: str | None) -> tuple[PutMark | None, bool]:
    """The line that puts the mark, and whether that is certain: False where it is put on every way, or by several.

    Where the taker tests for none, one of several lines may put it by a name of its own; the only line puts the items.
    """
    marks = [item for item in puts if item.args and _last(ast.unparse(item.args[0])) == _last(mark or "None")]
    if not marks:
        return None, mark is not None or len(puts) == 1
    normal = [item for item in marks if _handler(tree, item.lineno) is None] or marks
    only = _only(tree, normal[0].lineno) if len(normal) == 1 else None
    if only is None:
        return None, False
    return PutMark(shortened(ast.unparse(normal[0].args[0]), _LONGEST), normal[0].lineno, only), True


def taken_before(tree: ast.Module, puts: list[ast.Call], taken: Taking, line: int, started: LineWords) -> int | None:
    """The only line that puts the mark, where it does on every way, and `line` may take once more than the thread runs.

    `started`: the line that starts the thread. None where that comes before each pass.
    """
    marks = [item for item in puts if item.args and _last(ast.unparse(item.args[0])) == _last(taken.mark or "None")]
    if taken.mark is None or len(marks) != 1 or swallowed(tree, puts) is not None:
        return None
    mark = marks[0].lineno
    if _only(tree, mark) is not None or loops_around(tree, mark) or started.line is None:
        return None
    if scope_of(tree, started.line) is scope_of(tree, line) and len(loops_around(tree, line)) < _A_PASS_IN_ANOTHER:
        return None
    around = {id(item) for item in loops_around(tree, started.line)}
    return mark if not any(id(item) in around for item in loops_around(tree, line)) else None


def puts_into(tree: ast.Module, names: frozenset[str]) -> list[ast.Call]:
    """The calls of a file that put something into a queue of these names, in their order."""
    found = [
        item
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and called_name(item) in _PUT
        if _last(ast.unparse(item.func.value)) in names
    ]
    return sorted(found, key=lambda item: item.lineno)


def may_be_mark(tree: ast.Module, put: ast.Call, mark: str) -> bool:
    """Whether what a line puts may be the mark by another name: an item of `[*rows, None]`, a parameter, a variable."""
    given = put.args[0] if put.args else None
    if given is None or isinstance(given, (ast.Constant, ast.Tuple, ast.Dict)):
        return False
    if not isinstance(given, ast.Name):
        return mark in [ast.unparse(item) for item in nodes_of(given) if isinstance(item, (ast.Constant, ast.Name))]
    scope = scope_of(tree, put.lineno)
    values = [value for item in own_nodes(scope) for target, value in set_by(item) if given.id in bare_names(target)]
    values += [item.iter for item in rounds_around(tree, put.lineno, "put") if isinstance(item, ast.For)]
    if isinstance(scope, _FUNCTIONS) and given.id in parameters(scope):
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == scope.name]
        values += [*scope.args.defaults, *scope.args.kw_defaults, *calls]
    said = [item for value in values if value is not None for item in nodes_of(value)]
    return any(isinstance(item, ast.expr) and ast.unparse(item).rpartition(".")[2] == mark.rpartition(".")[2]
               for item in said)  # fmt: skip


def _has_no_limit(call: ast.Call) -> bool:
    first = argument_at(call, 0, "block")
    waits = first is None or (isinstance(first, ast.Constant) and first.value is True)
    return waits and len(call.args) < 2 and keyword_value(call, "timeout") is None


def _tested(tree: ast.Module, line: int, call: ast.Call) -> str | None:
    """`None` of `if item is None` and `while (item := q.get()) is not None`, where it is the only such test."""
    scope = scope_of(tree, line)
    names = {name for item in own_nodes(scope) for name in _bound(item, call)}
    tests = {
        ast.unparse(item.comparators[0])
        for item in own_nodes(scope)
        if isinstance(item, ast.Compare) and isinstance(item.ops[0], _EQUAL) and len(item.ops) == 1
        if _is_taken(item.left, names, call)
    }
    return next(iter(tests)) if len(tests) == 1 else None


def _bound(item: ast.AST, call: ast.Call) -> Iterator[str]:
    if isinstance(item, ast.Assign) and item.value is call:
        yield from (part.id for part in item.targets if isinstance(part, ast.Name))
    elif isinstance(item, ast.NamedExpr) and item.value is call:
        yield item.target.id


def _is_taken(node: ast.expr, names: set[str], call: ast.Call) -> bool:
    return node is call or (isinstance(node, ast.NamedExpr) and node.value is call) or ast.unparse(node) in names


def _only(tree: ast.Module, line: int) -> Obstacle | None:
    """What a line is reached by only, the closest; None where it is reached on every way, as far as that shows."""
    handler = _handler(tree, line)
    if handler is not None:
        head = f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
        return Obstacle(shortened(head, _LONGEST), handler.lineno, around=True)
    last = [item for item in own_nodes(scope_of(tree, line)) if isinstance(item, ast.Try)]
    first = max((item.finalbody[0].lineno for item in last if spans_body(item.finalbody, line)), default=0)
    found = [item for item in obstacles(tree, line) if item.line >= first]
    leaves = [item for item in found if not item.caught]
    return next((item for item in [*(one for one in leaves if one.around), *leaves, *found]), None)


def swallowed(tree: ast.Module, puts: list[ast.Call]) -> Obstacle | None:
    """An `except` around a line that fills the queue, which goes on and puts nothing: nobody learns of its error."""
    for call in puts:
        for item in obstacles(tree, call.lineno):
            handler = _handler(tree, item.line + 1) if item.caught else None
            if (
                handler is not None
                and handler.type is not None
                and ast.unparse(handler.type).rpartition(".")[2] == "Full"
            ):
                continue  # it tries again
            if item.caught and (handler is None or not any(spans_body(handler.body, one.lineno) for one in puts)):
                return item
    return None


def _handler(tree: ast.Module, line: int) -> ast.ExceptHandler | None:
    found = [item for item in own_nodes(scope_of(tree, line)) if isinstance(item, ast.ExceptHandler)]
    return next((item for item in found if spans_body(item.body, line)), None)


def _last(text: str) -> str:
    """`END` of `END`, of `self.END` and of `Loader.END`."""
    return text.rpartition(".")[2]
