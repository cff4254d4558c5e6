"""A queue of which a loop takes fewer items than are put: it rounds its number down, and the last part is smaller.

`for _ in range(len(rows) // size): await results.get()`, of what was made by `rows.split(size)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.syntax.bindings import bound_value, set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.coroutines import Coroutine
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS, deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import bare_names, last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans
from pytracer.analyze.evidence.waits.undone_items import call_owner
from pytracer.analyze.naming import LineWords, line_in

_PUT = ("put", "put_nowait")
_TAKE = ("get", "get_nowait")
_PLAIN = (ast.Call, ast.Name, ast.Attribute)
_DEEPEST = 3  # queues, from the one that is joined to that which has the parts


class _Parts(msgspec.Struct, frozen=True):
    """What makes the parts, `rows.split(size)`: `size` as it is named at the loop that puts them.

    `scope`, `of_names`: the function of that loop, and the variables that this goes back to.
    """

    file: str
    node: ast.expr
    size: str
    scope: Scope | None = None
    of_names: frozenset[str] = frozenset()


class RoundedTaker(msgspec.Struct, frozen=True):
    """`count`: how many are taken, as the line `at` has it; `parts`: what makes one more, at the line `made`."""

    count: str
    at: LineWords
    parts: str
    made: LineWords
    divided: str
    by: str

    @property
    def words(self) -> str:
        """After the line that awaits the join()."""
        return (
            f"{self.at} takes only `{self.count}` of its items, rounded down, while {self.made} (`{self.parts}`) makes "
            f"one part more of a rest: where `{self.divided}` is no multiple of `{self.by}`, the last item is left in "
            "it without task_done()"
        )

    @property
    def advice(self) -> str:
        """To take as many as were put."""
        return (
            f"Take as many as were put: count them where they are put, or round up at {self.at} "
            f"(`-(-{self.divided} // {self.by})`, math.ceil()). Call task_done() once for each; else print, before the "
            "join(), how many were put and how many were taken."
        )


def rounded_taker(
    files: Mapping[str, ast.Module], run: Sequence[Coroutine], taker: Coroutine, names: frozenset[str], here: str
) -> RoundedTaker | None:
    """None where the number is not rounded down, or what makes the items is not known to round up.

    Args:
        files: The program's.
        run: The coroutines that the loop runs.
        taker: The one that takes from the queue.
        names: Those of the queue.
        here: The file that is spoken of.
    """
    gets = [item for item in own_nodes(taker.node) if call_owner(item, _TAKE) in names]
    count = _count(taker, gets[0]) if len(gets) == 1 else None
    floor = _floor(taker, count) if count is not None else None
    if count is None or floor is None:
        return None
    divided, by = source(floor.left), source(floor.right)
    parts = _parts_of(files, run, names)
    if parts is None or parts.size.rpartition(".")[2] != by.rpartition(".")[2]:
        return None
    if parts.scope is taker.node and _reached(taker.node, floor.left).isdisjoint(parts.of_names):
        return None
    if any(_leaves_rest_out(item.node, by) for item in run):
        return None
    at, made = line_in(taker.file, floor.lineno, here), line_in(parts.file, parts.node.lineno, here)
    return RoundedTaker(short(source(floor)), at, short(source(parts.node)), made, divided, by)


def _count(taker: Coroutine, get: ast.AST) -> ast.expr | None:
    """`n` of the only loop `for _ in range(n)` around a call."""
    line = getattr(get, "lineno", 0)
    around: list[ast.AST] = [*loops_around(taker.tree, line)]
    heads = [item.iter if isinstance(item, (ast.For, ast.AsyncFor)) else None for item in around]
    for item in own_nodes(taker.node):
        if isinstance(item, ITEM_COMPREHENSIONS) and any(part is get for part in nodes_of(item)):
            heads += [one.iter for one in item.generators]
    match heads:
        case [ast.Call(func=ast.Name(id="range"), args=[count])]:
            return count
    return None


def _floor(taker: Coroutine, count: ast.expr) -> ast.BinOp | None:
    """`a // b`, itself or by a variable; not `(a + b - 1) // b` nor `-(-a // b)`, which round up."""
    value: ast.AST | None = count
    if isinstance(count, ast.Name):
        bound = bound_value(taker.node, count.id, count.lineno)
        value = bound[1] if bound is not None else None
    match value:
        case ast.Call(func=ast.Name(id="int"), args=[ast.BinOp(op=ast.Div()) as divided]):
            return divided if isinstance(divided.left, _PLAIN) else None
        case ast.BinOp(op=ast.FloorDiv(), left=left) as whole if isinstance(left, _PLAIN):
            return whole
    return None


def _parts_of(
    files: Mapping[str, ast.Module], run: Sequence[Coroutine], names: frozenset[str], depth: int = _DEEPEST
) -> _Parts | None:
    """Where each part is put: into this queue, or into one of which a loop puts one result for each that it takes."""
    puts = [(part, item) for part in run for item in own_nodes(part.node) if call_owner(item, _PUT) in names]
    if len(puts) != 1 or not depth:
        return None
    part, put = puts[0]
    loop = next(reversed(loops_around(part.tree, getattr(put, "lineno", 0))), None)
    if isinstance(loop, ast.For):
        if any(spans(loop, item.lineno) for item, _ in deciding_ifs(part.tree, getattr(put, "lineno", 0))):
            return None  # some are left out
        found = next(_made(files, part.file, part.tree, loop.iter), None)
        of_names = frozenset(_reached(part.node, loop.iter))
        return msgspec.structs.replace(found, scope=part.node, of_names=of_names) if found is not None else None
    gets = [item for item in own_nodes(part.node) if isinstance(item, ast.Call) and called_name(item) == "get"]
    if len(gets) != 1 or not isinstance(gets[0].func, ast.Attribute):
        return None
    before = last_name(gets[0].func.value)
    return _parts_of(files, run, frozenset({before}), depth - 1) if before is not None else None


def _reached(scope: Scope, node: ast.AST) -> set[str]:
    """The variables of an expression, and those that the function made them of."""
    reached, new = set[str](), bare_names(node)
    while new:
        reached |= new
        values = (value for item in own_nodes(scope) for target, value in set_by(item)
                  if value is not None and bare_names(target) & new)  # fmt: skip
        new = {name for value in values for name in bare_names(value)} - reached
    return reached


def _leaves_some_out(node: ast.AST) -> bool:
    match node:
        case ast.comprehension(ifs=[_, *_]) | ast.Subscript(slice=ast.Slice(upper=ast.UnaryOp())):
            return True
    return False


def _leaves_rest_out(scope: Scope, by: str) -> bool:
    """`rows[: n // size * size]`, `assert n % size == 0`: the rest is known of."""
    for item in own_nodes(scope):
        match item:
            case ast.BinOp(op=ast.Mod(), right=right) if source(right) == by:
                return True
            case ast.BinOp(op=ast.Mult(), left=left, right=right) if source(right) == by or source(left) == by:
                return True
    return False


def _made(files: Mapping[str, ast.Module], file: str, tree: ast.Module, value: ast.expr) -> Iterator[_Parts]:
    """What makes parts of one size in an expression, in the variable that it reads, or the function that it calls."""
    if isinstance(value, ast.Name):
        bound = bound_value(scope_of(tree, value.lineno), value.id, value.lineno)
        value = bound[1] if bound is not None and isinstance(bound[1], ast.expr) else value
    yield from (_Parts(file, call, size) for call, size in _parts([value]))
    for call in (item for item in nodes_of(value) if isinstance(item, ast.Call)):
        found = called_function(files, tree, call)
        if found is None:
            continue
        home, function = found
        for node, size in _parts(own_nodes(function)):
            given = argument_of(call, function, size)
            yield _Parts(home, node, source(given) if given is not None else size)


def _parts(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, str]]:
    """`rows.split(size)`, `torch.split(rows, size)`, `range(0, n, size)`, `batched(rows, size)`.

    Not where some of them are left out: `if len(part) == size`, `[:-1]`, or a range that ends before the rest.
    """
    found = [part for node in nodes for part in nodes_of(node)]
    if any(_leaves_some_out(item) for item in found):
        return
    ends = {target.id for item in found for target, value in set_by(item)
            if isinstance(target, ast.Name) and not isinstance(value, (*_PLAIN, ast.Subscript))}  # fmt: skip
    for item in found:
        match item:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy" | "re"))):
                continue  # np.split() takes a number of parts
            case ast.Call(func=ast.Attribute(attr="split"), args=[*_, size]) if not isinstance(size, ast.Constant):
                yield item, source(size)
            case ast.Call(func=ast.Name(id="range"), args=[_, end, size]):
                if isinstance(end, (*_PLAIN, ast.Subscript)) and ast.unparse(end) not in ends:
                    yield item, source(size)
            case ast.Call(func=ast.Name(id="batched") | ast.Attribute(attr="batched"), args=[_, size]):
                yield item, source(size)
