"""Comprehensions as the loops that they are: `[step(batch) for batch in loader]` calls step() once a round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, Loop, loops_around
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans

_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
# What only goes through something, where the call itself cannot be.
_PASSING = frozenset(
    {"enumerate", "zip", "range", "reversed", "sorted", "list", "iter", "islice", "tqdm", "trange", "track", "len"}
    | {"items", "keys", "values"}
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
    around = (item for item in own_nodes(scope_of(tree, line)) if isinstance(item, COMPREHENSIONS) and spans(item, line))
    for item in around:
        heads = [part.iter for part in item.generators]
        for place, part in enumerate(item.generators):
            repeated = [*part.ifs, *heads[place + 1 :], *(one for at in item.generators[place + 1 :] for one in at.ifs)]
            if _is_called([*_values(item), *repeated], heads[: place + 1], line, called):
                yield _statement(item, part)


def _values(item: _Comprehension) -> list[ast.expr]:
    return [item.key, item.value] if isinstance(item, ast.DictComp) else [item.elt]


def _is_called(repeated: list[ast.expr], heads: list[ast.expr], line: int, called: str | None) -> bool:
    """Whether the call of a line is one of a round."""
    inside = [call for call in _calls(repeated) if spans(call, line)]
    before = [name for call in _calls(heads) if (name := called_name(call)) not in _PASSING]
    if any(called_name(call) == called for call in inside):
        return True
    return bool(inside) and not before


def _calls(nodes: list[ast.expr]) -> Iterator[ast.Call]:
    return (item for node in nodes for item in ast.walk(node) if isinstance(item, ast.Call))


@lru_cache(maxsize=256)  # so that it is one node whenever it is asked for
def _statement(item: _Comprehension, part: ast.comprehension) -> ast.For:
    """`for batch in loader:` with the values as its body; from the line of its `for` to the end of the whole."""
    body: list[ast.stmt] = [ast.copy_location(ast.Expr(value), value) for value in _values(item)]
    loop = ast.For(target=part.target, iter=part.iter, body=body, orelse=[])
    ast.copy_location(loop, part.target)
    loop.end_lineno, loop.end_col_offset = item.end_lineno, item.end_col_offset
    return loop
