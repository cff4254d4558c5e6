"""What the variables of a condition were on two ranks, and how it came out with these on each."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.rank_value_words import value_words
from pytracer.analyze.collectives.rank_values import RANK, Compared, variables_in
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import outcome
from pytracer.analyze.evidence.syntax.round_counters import round_counter
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_MOST = 2
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAKERS = ("__init__", "__post_init__", "__new__")
_BY_NAME = ("setattr", "delattr", "vars")
_READERS = frozenset(
    {"print", "len", "range", "enumerate", "min", "max", "sum", "abs", "int", "float", "bool", "str", "repr"}
)


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
    counter = round_counter(loop)  # differs where one rank has left the loop: no reason
    for item in variables_in(test):
        name = ast.unparse(item)
        if counter is not None and name == counter.id:
            continue
        pair = compared.pair(item, spot)
        if pair is None or may_have_changed(spot, name, pair[1], (loop.end_lineno or 0) + 1, behind):
            continue
        if pair[0] != pair[1]:
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
    since = [_since(spot.tree, line, item.line or 0, within) for item, within in ((here, loop), (there, None))]
    items = _variables(test)
    pairs = {name: compared.pair(item, spot) for name, item in items.items()}
    if not all(since) or any(
        may_have_changed(spot, name, value, *part)
        for name, pair in pairs.items()
        for value, parts in zip(pair or (None, None), since, strict=True)
        for part in parts
    ):
        return None

    return _came_out(compared, structs.replace(spot, line=line), (one, other), test, pairs)


def settled(one: Side, other: Side, at: int, test: ast.expr, line: int) -> Tested | None:
    """As tested(), of a condition on attributes of `self` that no method sets once the object is made.

    These are the same at any time: the other rank need not have come to the function. `at` is of the first's way.
    """
    if RANK.search(ast.unparse(test)):
        return None
    compared = Compared(one.view, one.call, other.view, other.call)
    spot = compared.slice.spot(len(one.way) - 1 - at)
    items = _variables(test)
    if spot is None or not all(name.startswith("self.") for name in items):
        return None
    trees = program_files(one.view.process.snapshot, one.way[::-1]).values()
    if any(_is_set_later(tree, name) for tree in trees for name in items):
        return None
    pairs = {name: compared.pair_of_object(item, spot) for name, item in items.items()}
    return _came_out(compared, structs.replace(spot, line=line), (one, other), test, pairs)


def _came_out(
    compared: Compared,
    spot: Spot,
    sides: tuple[Side, Side],
    test: ast.expr,
    pairs: Mapping[str, tuple[str, str] | None],
) -> Tested | None:
    def on(rank: int, node: ast.expr) -> str | None:
        pair = pairs.get(ast.unparse(node))
        return pair[rank] if pair is not None else None

    mine, theirs = (outcome(test, lambda node, rank=rank: on(rank, node)) for rank in (0, 1))  # type: ignore[misc]
    if mine is None or theirs is None:
        return None
    one, other = sides
    differ = {
        name: f"`{name}` is {pair[0]} on {one.name} and {pair[1]} on {other.name}"
        for name, pair in pairs.items()
        if pair is not None and pair[0] != pair[1]
    }
    node = next((item for item in variables_in(test) if ast.unparse(item) in differ), None)
    found = compared.follow(node, spot) if len(differ) == 1 and isinstance(node, ast.expr) else None
    reason = value_words(compared, found, (one.number, other.number), None) if found is not None else None
    return Tested(mine, theirs, " and ".join(differ.values()) if len(differ) <= _MOST else "", reason)


def _variables(test: ast.expr) -> dict[str, ast.expr]:
    """By their texts; of `self.state.n` not `self` and `self.state` as well."""
    found = {ast.unparse(item): item for item in variables_in(test) if isinstance(item, ast.expr)}
    owners = {owner for name in found for owner in _owners(name)[1:]}
    return {name: item for name, item in found.items() if name not in owners}


def _is_set_later(tree: ast.Module, name: str) -> bool:
    """Whether anything but a constructor sets one of the attributes by which a value is reached, or may by its name."""
    attributes = name.split(".")[1:]
    makers = [item for item in nodes_of(tree) if isinstance(item, _FUNCTIONS) and item.name in _MAKERS]
    made = {id(part) for item in makers for part in nodes_of(item)}
    return any(
        id(item) not in made
        and (
            (isinstance(item, ast.Attribute) and not isinstance(item.ctx, ast.Load) and item.attr in attributes)
            or (isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id in _BY_NAME)
        )
        for item in nodes_of(tree)
    )


def _since(tree: ast.Module, line: int, now: int, loop: Loop | None) -> list[tuple[int, int]]:
    """The first and last lines of what a rank at a line may have executed since it last passed a condition."""
    around = [item for item in loops_around(tree, now) if not spans(item, line)]
    inner = [(item.lineno, item.end_lineno or now) for item in around]  # rounds of these before the present one
    if now >= line:
        return [(line + 1, now), *inner]
    if loop is None or not spans(loop, now):
        return []
    return [(line + 1, loop.end_lineno or 0), (loop.lineno, now), *inner]


def may_have_changed(spot: Spot, name: str, value: str | None, first: int, last: int) -> bool:
    """Whether something from the first line to the last may have changed what a variable, attribute or item is.

    By a plain local variable only what binds it; behind a call that is not known to read only, anything else may.
    """
    nodes = [item for item in own_nodes(spot.scope) if first <= getattr(item, "lineno", 0) <= last]
    owners = _owners(name)
    if any(_changes(item, owners) for item in nodes):
        return True
    is_local = owners == [name] and not isinstance(spot.scope, ast.Module) and not _is_shared(spot, name)
    if is_local and not (value or "").startswith(("list", "dict")):
        return False
    return any(not _only_reads(item, owners, spot.tree) for item in nodes if isinstance(item, ast.Call))


def _owners(name: str) -> list[str]:
    """`self.state["n"]`, `self.state` and `self`; a plain name alone."""
    node, found = ast.parse(name, mode="eval").body, [name]
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
        found.append(ast.unparse(node))
    return found


def _changes(node: ast.AST, owners: list[str]) -> bool:
    """Whether it binds, deletes or replaces one of them, an item of one, or an attribute of that name of anything."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        text = ast.unparse(node)
        attribute = isinstance(node, ast.Attribute) and any(item.endswith(f".{node.attr}") for item in owners)
        return text in owners or attribute or (isinstance(node, ast.Subscript) and ast.unparse(node.value) in owners)
    bound = [node.name] if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler)) else []
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        bound = [(item.asname or item.name).partition(".")[0] for item in node.names]
    return any(item in owners for item in bound)


def _is_shared(spot: Spot, name: str) -> bool:
    """Whether another function may bind it: `global`, `nonlocal`."""
    shared = (item for item in nodes_of(spot.tree) if isinstance(item, (ast.Global, ast.Nonlocal)))
    return any(name in item.names for item in shared)


def _only_reads(call: ast.Call, owners: list[str], tree: ast.Module) -> bool:
    """`dist.all_reduce(x)`, `print(step)`: of an imported module, or a builtin, and given none of the owners."""
    given = [*call.args, *(item.value for item in call.keywords)]
    if any(ast.unparse(part) in owners for item in given for part in nodes_of(item) if isinstance(part, ast.expr)):
        return isinstance(call.func, ast.Name) and call.func.id in _READERS
    if isinstance(call.func, ast.Name):
        return call.func.id in _READERS
    return imported_as(tree, call.func) is not None
