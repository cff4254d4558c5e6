"""A number that a condition asks for, and that each rank takes out of a tensor of its own: a loss, a metric.

Followed back from the condition to the line that takes it (`x.item()`), or adds it up; or the condition takes it
itself. Nothing on the way shares it between ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.deciding_tests import DECIDE, advice_of_test, change_of_test
from pytracer.analyze.collectives.one_rank_values import is_shared
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.evidence.syntax.sharing import may_share
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_PLAIN = frozenset({"float", "int", "bool", "abs", "round", "min", "max", "len", "item", "isnan", "isfinite", "isinf"})
_MOST_CALLS = 1  # functions inside of one another in which the condition is looked for
_OF_ALL = frozenset({"mean", "sum", "max", "min", "median", "std", "var"})


class LocalNumber(msgspec.Struct, frozen=True):
    """`name`: in the condition; `place` and `text`: the line that takes it out of a tensor, or adds it up.

    `there`: whether that line has the number itself.
    """

    name: str
    place: str
    text: str
    there: bool = True

    @property
    def advice(self) -> str:
        """What to change."""
        where = "there" if self.there else "before the condition asks"
        return (
            f"each rank computes `{self.name}` for itself ({self.place}: `{self.text}`). all_reduce() it {where}, so "
            "that all ranks decide by the same number, or let one rank decide and broadcast that."
        )


def local_number(
    snapshot: Snapshot, frames: Sequence[PythonFrame], depth: int, line: int, test: ast.expr
) -> LocalNumber | None:
    """The first such number of a condition.

    Args:
        snapshot: Of a rank.
        frames: Those of the program, the innermost first.
        depth: The frame of the condition among them.
        line: Of the condition.
        test: The condition.
    """
    slice_ = Slice(snapshot, frames)
    spot = slice_.spot(depth)
    return _number(slice_, structs.replace(spot, line=line), test, spot.file) if spot is not None else None


def _number(slice_: Slice, at: Spot, test: ast.expr, here: str | None, hops: int = _MOST_CALLS) -> LocalNumber | None:
    """Of a condition at a place, or of those by which a function of the program decides that it calls."""
    for name in names_of(test):
        node = next((item for item in nodes_of(test) if variable(item) == name), None)
        made = slice_.made(node, at, calls=True) if node is not None else None
        if made is None or is_shared(slice_, name, at) or _is_shared_there(slice_, made):
            continue
        item = _item_of(test, name, made)
        name, made = item if item is not None else (name, made)
        taken = made.node if _takes_number(made.node) else None
        if taken is None and _asks_plainly(slice_, test, at):
            taken = _added_up(slice_, made) or _taken_by(test, name, made)
        if taken is not None:
            line = getattr(taken, "lineno", made.line)
            place = line_in(made.spot.file, line, here)
            return LocalNumber(name, place, source(taken), there=_takes_number(taken))
    if hops == 0 or not _asks_plainly(slice_, test, at):
        return None
    inner = (_number(slice_, spot, asked, here, hops - 1) for spot, asked in _asked_inside(slice_, test, at))
    return next((found for found in inner if found is not None), None)


def _item_of(test: ast.expr, name: str, made: Made) -> tuple[str, Made] | None:
    """`logs[self.monitor]`, of a dict with one entry, or with that key."""
    if not isinstance(made.node, ast.Dict):
        return None
    asked = next(
        (item for item in nodes_of(test) if isinstance(item, ast.Subscript) and variable(item.value) == name), None
    )
    if asked is None:
        return None
    pairs = [
        value
        for key, value in zip(made.node.keys, made.node.values, strict=True)
        if key is not None
        if ast.unparse(key) == ast.unparse(asked.slice)
        or (len(made.node.keys) == 1 and not isinstance(asked.slice, ast.Constant))
    ]
    sets = (item for item in nodes_of(made.spot.tree) if isinstance(item, ast.Subscript))
    if any(isinstance(item.ctx, ast.Store) and variable(item.value) == name for item in sets):
        return None  # it has more entries
    return (source(asked), structs.replace(made, node=pairs[0])) if len(pairs) == 1 else None


def _asked_inside(slice_: Slice, test: ast.expr, at: Spot) -> Iterator[tuple[Spot, ast.expr]]:
    """The conditions of the functions that are called, and what these return, with their places."""
    for call in (item for item in nodes_of(test) if isinstance(item, ast.Call)):
        found = slice_.function(call, at)
        if found is None:
            continue
        function, inside = found
        for item in own_nodes(function):
            asked = item.test if isinstance(item, ast.If) else item.value if isinstance(item, ast.Return) else None
            if asked is not None and not isinstance(asked, ast.Constant):
                yield Spot(inside.file, inside.tree, function, asked.lineno, None, (call, at)), asked


def advice_at(snapshot: Snapshot, way: Sequence[PythonFrame], position: int, decides: ast.If, tree: ast.Module) -> str:
    """What to do about an `if` that one rank may have passed by, of a function on the way (the outermost first)."""
    number = number_at(snapshot, way, position, decides) if change_of_test(decides, tree) == DECIDE else None
    return number.advice if number is not None else advice_of_test(decides, tree)


def number_at(snapshot: Snapshot, way: Sequence[PythonFrame], position: int, decides: ast.If) -> LocalNumber | None:
    """As local_number, of an `if` of a function on the way, the outermost first."""
    return local_number(snapshot, way[::-1], len(way) - 1 - position, decides.lineno, decides.test)


def _takes_number(node: ast.AST) -> bool:
    """`losses.mean().item()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) == "item"


def _added_up(slice_: Slice, made: Made) -> ast.AST | None:
    """`total += loss.item()` above, of `total / n`; also `loss.item() / n` itself."""
    if not isinstance(made.node, ast.BinOp):
        return None
    if any(_takes_number(item) for item in nodes_of(made.node)):
        return made.node
    names = names_of(made.node)
    if any(is_shared(slice_, name, made.spot) for name in names):
        return None
    for item in own_nodes(made.spot.scope):
        sets = isinstance(item, ast.AugAssign) and variable(item.target) in names
        if sets and any(_takes_number(part) for part in nodes_of(item)):
            return item
    return None


def _taken_by(test: ast.expr, name: str, made: Made) -> ast.AST | None:
    """What `kl.item()` or `float(kl)` of the condition is a number of: `(ratio - 1).mean()`."""
    node = made.node
    computed = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) in _OF_ALL
    if not computed or imported_as(made.spot.tree, node.func) is not None:  # type: ignore[attr-defined]
        return None
    for item in nodes_of(test):
        if not isinstance(item, ast.Call):
            continue
        of = item.func.value if _takes_number(item) else item.args[0] if called_name(item) == "float" else None  # type: ignore[attr-defined]
        if of is not None and variable(of) == name:
            return node
    return None


def _asks_plainly(slice_: Slice, test: ast.expr, spot: Spot) -> bool:
    """Whether what the condition calls is known, and shares nothing, and it does not go by the rank itself."""
    if is_of_rank(test):
        return False  # which says more
    for call in (item for item in nodes_of(test) if isinstance(item, ast.Call)):
        own = slice_.function(call, spot)
        if own is None and called_name(call) not in _PLAIN:
            return False
        if own is not None and any(may_share(item) for item in own_nodes(own[0]) if isinstance(item, ast.Call)):
            return False
    return True


def _is_shared_there(slice_: Slice, made: Made) -> bool:
    """Whether the function that takes it, or one of the program that it calls, calls anything that may share."""
    calls = [item for item in own_nodes(made.spot.scope) if isinstance(item, ast.Call)]
    own = (found[0] for item in calls if (found := slice_.function(item, made.spot)) is not None)
    inner = [item for function in own for item in own_nodes(function) if isinstance(item, ast.Call)]
    return any(may_share(item) for item in (*calls, *inner))
