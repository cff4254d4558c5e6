"""Comprehensions as the loops that they are: `[step(batch) for batch in loader]` calls step() once a round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, Loop, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans

_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_FRAMES: dict[type[ast.expr], str] = {  # each has one of its own before Python 3.12, but the last also later
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
# What only goes through something, or takes the values of all rounds, where the call itself cannot be.
_PASSING = frozenset(
    {"enumerate", "zip", "range", "reversed", "sorted", "list", "iter", "islice", "tqdm", "trange", "track", "len"}
    | {"items", "keys", "values", "sum", "max", "min", "any", "all", "set", "tuple", "dict", "float", "int", "print"}
    | {"stack", "cat", "tensor", "array", "mean", "item", "join", "append", "extend"}
)


def rounds_around(tree: ast.Module, line: int, called: str | None = None) -> list[Loop]:
    """As loops_around, with each `for` of a comprehension that makes a call of the line once a round, as a statement.

    Args:
        tree: Of the file.
        line: The line.
        called: The name of what the line calls, where it is known; by it the call of a round is told from one of the
            head, which is made once.
    """
    return [*loops_around(tree, line), *_of_comprehensions(tree, line, called)]


def _of_comprehensions(tree: ast.Module, line: int, called: str | None) -> Iterator[ast.For]:
    """The outermost first."""
    nodes = [item for item in own_nodes(scope_of(tree, line)) if isinstance(item, ast.expr) and spans(item, line)]
    calls = [item for item in nodes if isinstance(item, ast.Call)]
    for item in nodes:
        if not isinstance(item, COMPREHENSIONS):
            continue
        for place, part in enumerate(item.generators):
            inside = {id(one) for value in _repeated(item, place) for one in nodes_of(value)}
            repeated = [call for call in calls if id(call) in inside]
            once = [call for call in calls if id(call) not in inside]
            if _is_called(repeated, once, called) or (repeated and called == _FRAMES[type(item)]):
                yield _statement(item, part)


def _repeated(item: _Comprehension, place: int) -> list[ast.expr]:
    """What is done in each round of the `for` of a place: also the loops below it."""
    inner = item.generators[place + 1 :]
    conditions = (one for part in item.generators[place:] for one in part.ifs)
    return [*_values(item), *conditions, *(part.iter for part in inner)]


def _values(item: _Comprehension) -> list[ast.expr]:
    return [item.key, item.value] if isinstance(item, ast.DictComp) else [item.elt]


def _is_called(repeated: list[ast.Call], once: list[ast.Call], called: str | None) -> bool:
    """Whether the call of a line is one of those of a round; by the names, else where the others only pass on."""
    named = [[call for call in calls if called_name(call) == called] for calls in (repeated, once)]
    if any(named):
        return bool(named[0]) and not named[1]
    return bool(repeated) and all(called_name(call) in _PASSING for call in once)


@lru_cache(maxsize=256)  # so that it is one node whenever it is asked for
def _statement(item: _Comprehension, part: ast.comprehension) -> ast.For:
    """`for batch in loader:` with the values as its body; from the line of its `for` to the end of the whole."""
    body: list[ast.stmt] = [ast.copy_location(ast.Expr(value), value) for value in _values(item)]
    loop = ast.For(target=part.target, iter=part.iter, body=body, orelse=[])
    ast.copy_location(loop, part.target)
    loop.end_lineno, loop.end_col_offset = item.end_lineno, item.end_col_offset
    return loop
