"""A generator without end that yields for the items of a collection alone: over an empty one it never does.

`while True:` around `for row in stream.rows(): yield row`, as a dataset that is repeated for ever is written.
"""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes
from pytracer.analyze.evidence.syntax.unbounded import (
    EndlessLoop,
    Reason,
    body_of,
    never_asked_to_stop,
    short_text,
)

_YIELDS = (ast.Yield, ast.YieldFrom)


def empty_rounds(scope: Scope, loop: EndlessLoop) -> Reason | None:
    """None where a round may yield, leave or wait outside of its only `for` loop."""
    if not never_asked_to_stop(loop):
        return None
    inner = [item for item in loop.body if isinstance(item, ast.For)]
    if len(inner) != 1 or inner[0].orelse or _is_more(loop, inner[0]):
        return None
    text = short_text(inner[0].iter)
    made = _made(scope, inner[0].iter, loop.lineno)
    made_words = f" (`{made[0]}`: line {made[1]})" if made is not None else ""
    return Reason(
        f"a round in which `{text}` (line {inner[0].lineno}) gives nothing neither yields nor leaves the loop",
        f"See what `{text}` of line {inner[0].lineno} gives in that worker{made_words}: if it is empty there, because "
        "the worker has no part of the data, the loop goes round for ever without a sample. Give each worker a part "
        "(fewer workers, or more shards), and let the loop return or raise where a round yielded nothing. "
        "num_workers=0 does not show it, where one process has all parts.",
    )


def _is_more(loop: EndlessLoop, inner: ast.For) -> bool:
    """Whether the round does anything else that yields, waits, or may raise at its end, as next() does."""
    own = {id(item) for item in nodes_of(inner)}
    outside = [item for item in body_of(loop) if id(item) not in own]
    if any(isinstance(item, (*_YIELDS, ast.Await, ast.With, ast.Try, *LOOPS)) for item in outside):
        return True
    if any(isinstance(item, ast.YieldFrom) for item in nodes_of(inner.iter)):
        return True
    calls = [item for item in outside if isinstance(item, ast.Call)]
    return any(isinstance(item.func, ast.Name) and item.func.id == "next" for item in calls)


def _made(scope: Scope, source: ast.expr, before: int) -> tuple[str, int] | None:
    """The variable that the collection is of, and the last line above that sets it."""
    names = [item.id for item in nodes_of(source) if isinstance(item, ast.Name) and item.id != "self"]
    for name in names:
        lines = [line for line, _ in lines_that_bind(scope, name) if line < before]
        if lines:
            return name, max(lines)
    return None


def only_generator(owner: ast.ClassDef, getter: ast.FunctionDef) -> ast.FunctionDef:
    """The method that does the work of `__iter__`, where that is `yield from self.rows()` or `return self.rows()`."""
    loops = [item for item in own_nodes(getter) if isinstance(item, LOOPS)]
    given = [item.value for item in own_nodes(getter) if isinstance(item, (ast.YieldFrom, ast.Return))]
    call = given[0] if len(given) == 1 and not loops else None
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith("self."):
        return getter
    name = ast.unparse(call.func).removeprefix("self.")
    methods = (item for item in owner.body if isinstance(item, ast.FunctionDef))
    return next((item for item in methods if item.name == name), getter)
