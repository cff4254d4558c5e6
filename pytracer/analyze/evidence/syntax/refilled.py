"""Loops over a list of work that they fill themselves: with what they took from it, or with more of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import names_read
from pytracer.analyze.evidence.syntax.constants import ORDERS
from pytracer.analyze.evidence.syntax.names import is_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, body_of, short_text

_TAKES = frozenset({"pop", "popleft", "get", "get_nowait", "heappop", "popitem"})
_PUTS = frozenset({"append", "extend", "appendleft", "put", "put_nowait", "insert", "add", "heappush"})
_OF_HEAP = ("heappop", "heappush")
_PARTS = (ast.Attribute, ast.Subscript, ast.BinOp)


class _Refilled(msgspec.Struct, frozen=True):
    """`name`: the list; `takes`, `puts`: the calls."""

    name: str
    takes: ast.Call
    puts: ast.Call


def refilled(loop: EndlessLoop, test: ast.expr) -> Reason | None:
    """Why a loop whose condition asks for a list may not empty it."""
    if _is_counted(loop, test):
        return None
    for name in names_read(test):
        calls = [item for item in body_of(loop) if isinstance(item, ast.Call) and _container(item) == name]
        takes = next((item for item in calls if called_name(item) in _TAKES), None)
        if takes is None:
            continue
        taken = _taken(loop, takes)
        puts = [item for item in calls if called_name(item) in _PUTS]
        back = next((item for item in puts if taken is not None and _gives(item, taken)), None)
        if back is not None and taken is not None:
            return _put_back(loop, _Refilled(name, takes, back), taken)
        if puts and not _asks_for_members(loop):
            return _more_of_it(_Refilled(name, takes, puts[0]))
    return None


def _container(call: ast.Call) -> str | None:
    """`todo` of `todo.pop()` and of `heapq.heappop(todo)`."""
    if called_name(call) in _OF_HEAP and call.args:
        return ast.unparse(call.args[0])
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else None


def _taken(loop: EndlessLoop, takes: ast.Call) -> str | None:
    """The variable that has what was taken."""
    for item in body_of(loop):
        for target, value in set_by(item):
            if value is takes and isinstance(target, ast.Name):
                return target.id
    return None


def _gives(puts: ast.Call, taken: str) -> bool:
    """Whether it puts that variable itself: a pair with a number of tries is another one each time."""
    given = puts.args[-1] if puts.args else None
    if called_name(puts) == "extend" and isinstance(given, (ast.List, ast.Tuple)) and len(given.elts) == 1:
        given = given.elts[0]
    return isinstance(given, ast.Name) and given.id == taken


def _put_back(loop: EndlessLoop, found: _Refilled, taken: str) -> Reason | None:
    """`todo.append(item)`, of an item that came from there."""
    around = [*_around(loop.body, found.puts)]
    tests = [item for item in around if isinstance(item, ast.If)]
    if any(_is_counted(loop, item.test) for item in tests) or _asks_for_members(loop, tests):
        return None  # tries that are limited
    if _is_cut(loop, taken) or (any(_reads_part(item.test, taken) for item in tests) and _works_on(loop, taken)):
        return None  # it comes nearer to its end each time
    name, line, took = found.name, found.puts.lineno, found.takes.lineno
    back = f"line {line} puts `{taken}` back into `{name}`, from which line {took} takes"
    tried = next((item for item in reversed(around) if isinstance(item, ast.Try)), None)
    if tests:
        guard = tests[-1]
        held = short_text(guard.test)
        holds = f"`{held}`" if _in(guard.body, found.puts) else f"not `{held}`"
        where = f"where {holds} (line {guard.lineno}): as long as that holds for all that it tries"
        asked = f"the data for which {holds} (line {guard.lineno})"
    elif tried is not None and any(_in(item.body, found.puts) for item in tried.handlers):
        where = f"where the `try` of line {tried.lineno} fails: as long as it fails for all that it tries"
        asked = f"the error that the `try` of line {tried.lineno} catches"
    else:
        return None
    return Reason(
        f"{back}, {where}, `{name}` never becomes empty",
        f"Bound the tries of the loop of line {loop.lineno}: count how often `{taken}` is put back (line {line}), and "
        f"leave it out, or raise an error that names it, above a limit. See {asked}: where nothing else can be taken, "
        "no pass changes that.",
    )


def _is_cut(loop: EndlessLoop, taken: str) -> bool:
    """`rows = rows[8:]`, `node = node.parent`, `left = left - 1`: what is put back is another one."""
    return any(
        isinstance(target, ast.Name) and target.id == taken and isinstance(value, _PARTS) and _is_in(value, taken)
        for item in body_of(loop)
        for target, value in set_by(item)
    )


def _reads_part(test: ast.expr, taken: str) -> bool:
    """`clip.finished()`, `clip.left > 0`, `len(clip)`: the condition asks the item itself how far it is."""
    return any(
        (isinstance(item, (ast.Attribute, ast.Subscript)) and is_name(item.value, taken))
        or (isinstance(item, ast.Call) and called_name(item) == "len" and _is_given(item, taken))
        for item in nodes_of(test)
    )


def _works_on(loop: EndlessLoop, taken: str) -> bool:
    """Whether a method of the item is called beside the conditions, or it is given to a function of the program."""
    tests = {id(part) for item in body_of(loop) if isinstance(item, ast.If) for part in nodes_of(item.test)}
    for item in body_of(loop):
        if not isinstance(item, ast.Call) or id(item) in tests:
            continue
        if isinstance(item.func, ast.Attribute) and is_name(item.func.value, taken):
            return True
        if _is_given(item, taken) and called_name(item) not in _PUTS:
            return True
    return False


def _is_given(call: ast.Call, taken: str) -> bool:
    return any(is_name(item, taken) for item in call.args)


def _is_in(node: ast.AST, name: str) -> bool:
    return any(is_name(item, name) for item in nodes_of(node))


def _more_of_it(found: _Refilled) -> Reason:
    name, takes, puts = found.name, found.takes.lineno, found.puts.lineno
    return Reason(
        f"it takes from `{name}` (line {takes}) and puts into it (line {puts}), and nothing in it skips what it had "
        "before: one circle in the data keeps it going",
        f"Keep a set of what was taken from `{name}`, and put nothing into it (line {puts}) that is in the set.",
    )


def _asks_for_members(loop: EndlessLoop, tests: Sequence[ast.If] = ()) -> bool:
    """`if item in seen`: what it had before may be skipped."""
    nodes = [part for item in tests for part in nodes_of(item.test)] if tests else body_of(loop)
    return _compares(nodes, (ast.In, ast.NotIn))


def _is_counted(loop: EndlessLoop, test: ast.expr) -> bool:
    """`tries < 5`, `tries[item] < 5`: a comparison with what the loop counts."""
    counted = {
        ast.unparse(item.target.value if isinstance(item.target, ast.Subscript) else item.target)
        for item in body_of(loop)
        if isinstance(item, ast.AugAssign)
    }
    return _compares(nodes_of(test), ORDERS) and not counted.isdisjoint(names_read(test))


def _compares(nodes: Sequence[ast.AST], by: tuple[type[ast.cmpop], ...]) -> bool:
    return any(isinstance(op, by) for item in nodes if isinstance(item, ast.Compare) for op in item.ops)


def _around(body: Sequence[ast.stmt], node: ast.AST) -> Iterator[ast.stmt]:
    """The statements with blocks around a node, the outermost first."""
    for item in body:
        if any(part is node for part in nodes_of(item)):
            blocks = [getattr(item, block, []) for block in ("body", "orelse", "finalbody")]
            blocks += [part.body for part in getattr(item, "handlers", [])]
            if any(blocks):
                yield item
            for block in blocks:
                yield from _around(block, node)


def _in(body: Sequence[ast.stmt], node: ast.AST) -> bool:
    return any(part is node for item in body for part in nodes_of(item))
