"""A number that depends on what is in the rank's own data: how many different words, the largest label.

`len(Vocabulary(texts))`, of `texts = read(rank)`: the lists may be as long on each rank, and the vocabularies differ.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.slicing.by_rank import EVEN, before, carriers
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.data_numbers import is_agreed
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters

_MOST = 60
_COUNTS = frozenset(
    {"set", "frozenset", "Counter", "unique", "max", "amax", "nunique", "defaultdict", "union", "update"}
)
_FILLS = frozenset({"append", "extend", "add", "update", "insert", "setdefault", "shuffle", "sort"})
_LAYERS = frozenset({"to", "cuda", "cpu"})


class ContentSource(msgspec.Struct, frozen=True):
    """`call`: what is given the rank, and makes the data; `counted`: what counts what is in that."""

    call: ast.Call
    spot: Spot
    counted: Made

    @property
    def line(self) -> int:
        """Its line."""
        return self.call.lineno


def content_source(slice_: Slice, node: ast.AST, spot: Spot) -> ContentSource | None:
    """None where nothing on the way counts what is in the data, or no call there is given the rank."""
    waiting: list[tuple[ast.AST, Spot, Made | None]] = [(node, spot, None)]
    seen: set[tuple[str, int, int, bool]] = set()
    while waiting and len(seen) < _MOST:
        item, place, counted = waiting.pop(0)
        made = slice_.made(item, place, calls=False)
        if is_agreed(made):
            continue
        key = (ast.unparse(made.node), id(made.spot.scope), made.spot.line, counted is not None)
        if key in seen or not isinstance(made.node, ast.expr):
            continue
        seen.add(key)
        for call, at in _calls(made):
            if counted is not None and _is_given_rank(slice_, call, at):
                return ContentSource(call, at, counted)
        counted = counted or (made if _counts(slice_, made) else None)
        waiting += [(part, at, counted) for part, at in before(slice_, made.node, made.spot)]
    return None


def _calls(made: Made) -> Iterator[tuple[ast.Call, Spot]]:
    """Itself, and what called the function that it is returned by."""
    if isinstance(made.node, ast.Call):
        yield made.node, made.spot
    if made.spot.call is not None:
        yield made.spot.call


def _is_given_rank(slice_: Slice, call: ast.Call, spot: Spot) -> bool:
    """Whether the rank is in what it is given; of a function of the program, in what that reads."""
    if called_name(call) in EVEN | _LAYERS:
        return False
    found = slice_.function(call, spot)
    if found is None:
        return any(is_of_rank(item) for item in carriers(call))
    aside = {id(part) for item in own_nodes(found[0]) if isinstance(item, ast.If) and _only_acts(item)
             for part in nodes_of(item)}  # fmt: skip
    read = {item.id for item in own_nodes(found[0]) if isinstance(item, ast.Name) and id(item) not in aside}
    given = (argument_of(call, found[0], name) for name in parameters(found[0]) if name in read)
    return any(item is not None and is_of_rank(item) for item in given)


def _only_acts(branch: ast.If) -> bool:
    """`if rank == 0: download()`: it makes nothing that the function goes on with."""
    return all(isinstance(item, (ast.Expr, ast.Pass)) for item in (*branch.body, *branch.orelse)) and not any(
        isinstance(item, (ast.Yield, ast.YieldFrom)) or (isinstance(item, ast.Call) and called_name(item) in _FILLS)
        for item in nodes_of(branch)
    )


def _counts(slice_: Slice, made: Made) -> bool:
    """Whether it, or the function or class of the program that it calls, makes one of what is there several times."""
    if _has_count(made.node):
        return True
    if not isinstance(made.node, ast.Call):
        return False
    found = slice_.function(made.node, made.spot) or slice_.defined(made.node.func, made.spot)
    return found is not None and _has_count(found[0])


def _has_count(node: ast.AST) -> bool:
    return any(
        isinstance(item, (ast.SetComp, ast.DictComp)) or (isinstance(item, ast.Call) and called_name(item) in _COUNTS)
        for item in nodes_of(node)
    )
