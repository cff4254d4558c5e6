"""What the variables of a condition were on two ranks, and how it came out with these on each."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.rank_value_words import value_words
from pytracer.analyze.collectives.rank_values import RANK, Compared, variables_in
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.outcomes import outcome
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_MOST = 2
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Tested(msgspec.Struct, frozen=True):
    """A condition with the values that two ranks had when they ended; `mine`: how it comes out on the first with these.

    `values`: `` `patience` is 5 on rank 1 and 2 on rank 0 ``, of its variables that differ; of at most two, else empty.
    `reason`: of the only one that differs, with the line that makes it, and what to do.
    """

    mine: bool
    theirs: bool
    values: str
    reason: str | None = None


def tested_words(inside: Side, outside: Side, at: int, loop: Loop, test: ast.expr) -> str:
    """`: `patience` is 5 on rank 1 and 2 on rank 0`; nothing where that is not recorded, or may have changed since.

    Args:
        inside: The rank that is still in the loop.
        outside: The one that has left it.
        at: Which frame of their ways, the outermost first, has the loop.
        loop: The loop.
        test: The condition.
    """
    compared = Compared(inside.view, inside.call, outside.view, outside.call)
    spot = compared.slice.spot(len(inside.way) - 1 - at)
    behind = outside.way[at].line if len(outside.way) > at else None
    if spot is None or behind is None:
        return ""
    found = dict[str, str]()
    for item in variables_in(test):
        name = ast.unparse(item)
        if _may_have_changed(spot, name, (loop.end_lineno or 0) + 1, behind):
            continue
        pair = compared.pair(item, spot)
        if pair is not None and pair[0] != pair[1]:
            found[name] = f"`{name}` is {pair[1]} on {outside.name} and {pair[0]} on {inside.name}"
    return f": {' and '.join(found.values())}" if 0 < len(found) <= _MOST else ""


def tested(one: Side, other: Side, at: int, test: ast.expr, line: int, loop: Loop | None = None) -> Tested | None:
    """How a condition last came out on two ranks that have both passed it.

    None where what is recorded does not tell, and of one that asks for the rank itself: that came out as meant.

    Args:
        one: A rank.
        other: Another one.
        at: Which frame of their ways, the outermost first, has the condition: both are in its function.
        test: The condition.
        line: Where it is.
        loop: One that it is in, and the first rank as well: that may be in a later round.
    """
    if min(len(one.way), len(other.way)) <= at or RANK.search(ast.unparse(test)):
        return None
    compared = Compared(one.view, one.call, other.view, other.call)
    spot = compared.slice.spot(len(one.way) - 1 - at)
    here, there = one.way[at], other.way[at]
    if spot is None or (here.file, here.function) != (there.file, there.function):
        return None
    since = [_since(line, item.line or 0, within) for item, within in ((here, loop), (there, None))]
    items = {ast.unparse(item): item for item in variables_in(test) if isinstance(item, ast.expr)}
    if not all(since) or any(
        _may_have_changed(spot, name, *part) for name in items for parts in since for part in parts
    ):
        return None
    pairs = {name: compared.pair(item, spot) for name, item in items.items()}

    def on(rank: int, node: ast.expr) -> str | None:
        pair = pairs.get(ast.unparse(node))
        return pair[rank] if pair is not None else None

    mine, theirs = (outcome(test, lambda node, rank=rank: on(rank, node)) for rank in (0, 1))  # type: ignore[misc]
    if mine is None or theirs is None:
        return None
    differ = {
        name: f"`{name}` is {pair[0]} on {one.name} and {pair[1]} on {other.name}"
        for name, pair in pairs.items()
        if pair is not None and pair[0] != pair[1]
    }
    found = compared.follow(items[next(iter(differ))], structs.replace(spot, line=line)) if len(differ) == 1 else None
    reason = value_words(compared, found, (one.number, other.number), None) if found is not None else None
    return Tested(mine, theirs, " and ".join(differ.values()) if len(differ) <= _MOST else "", reason)


def _since(line: int, now: int, loop: Loop | None) -> list[tuple[int, int]]:
    """The first and last lines of what a rank at a line may have executed since it last passed a condition."""
    if now >= line:
        return [(line + 1, now)]
    if loop is None or not loop.lineno <= now <= (loop.end_lineno or 0):
        return []
    return [(line + 1, loop.end_lineno or 0), (loop.lineno, now)]


def _may_have_changed(spot: Spot, name: str, first: int, last: int) -> bool:
    """Whether a line of the function from the first to the last, or what one calls, sets it or fills it."""
    name = name.partition("[")[0]
    if any(first <= line <= last for line in _lines(spot.scope, name)):
        return True
    owner, _, attribute = name.rpartition(".")
    if not owner:
        return False
    setters = {item.name for item in ast.walk(spot.tree) if isinstance(item, _FUNCTIONS) and _sets(item, attribute)}
    called = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and first <= item.lineno <= last)
    return any(called_name(item) in setters for item in called)


def _lines(scope: ast.AST, name: str) -> Iterator[int]:
    yield from (line for line, _ in lines_that_bind(scope, name))
    yield from lines_that_fill(scope, name)


def _sets(function: ast.AST, attribute: str) -> bool:
    return any(
        isinstance(item, ast.Attribute) and item.attr == attribute and isinstance(item.ctx, (ast.Store, ast.Del))
        for item in ast.walk(function)
    )
