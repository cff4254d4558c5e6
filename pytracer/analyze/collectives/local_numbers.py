"""A number that a condition asks for, and that each rank takes out of a tensor of its own: a loss, a metric.

Followed back from the condition to the line that takes it (`x.item()`), or adds it up; or the condition takes it
itself. Nothing on the way shares it between ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.data_parts import part_of_data
from pytracer.analyze.collectives.deciding_tests import DECIDE, advice_of_test, change_of_test
from pytracer.analyze.collectives.one_rank_values import is_shared, is_shared_value
from pytracer.analyze.collectives.rank_values import Compared
from pytracer.analyze.collectives.ways import Side
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
_CHANGES = frozenset({"update", "setdefault", "pop", "clear", "popitem"})
_OF_ALL = frozenset({"mean", "sum", "max", "min", "median", "std", "var"})


class LocalNumber(msgspec.Struct, frozen=True):
    """`name`: in the condition; `place` and `text`: the line that takes it out of a tensor, or adds it up.

    `there`: whether that line has the number itself. `part`: the line that gives each rank its part of the data that
    the number is computed from, with the expression that does so. `held`: what has it in the function of the condition,
    where that is an entry of a dict which only another function asks for.
    """

    name: str
    place: str
    text: str
    there: bool = True
    part: str | None = None
    held: str | None = None

    def own(self, values: str = "") -> str:
        """`` a `val_loss` of its own ``, for the headline; `values`: what it was."""
        part = ", from its own part of the data" if self.part is not None else ""
        return f"a `{self.name}` of its own{values}{part}"

    @property
    def advice(self) -> str:
        """What to change."""
        where = "there" if self.there else "before the condition asks"
        part = f", from its own part of the data ({self.part})" if self.part is not None else ""
        return (
            f"each rank computes `{self.name}` for itself ({self.place}: `{self.text}`){part}. all_reduce() it "
            f"{where}, so that all ranks decide by the same number, or let one rank decide and broadcast that."
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


def own_words(number: LocalNumber, inside: Side, outside: Side, at: int) -> str:
    """`` a `logs['val_acc']` of its own (1.0; 0.8 on rank 0) ``: what it was when the ranks ended, if that is recorded.

    Args:
        number: By which the rank outside left a loop.
        inside: A rank that is still in it.
        outside: The other one.
        at: Which frame of their ways, the outermost first, has the loop.
    """
    compared = Compared(inside.view, inside.call, outside.view, outside.call)
    spot = compared.slice.spot(len(inside.way) - 1 - at)
    if spot is None or number.held is None:
        return number.own()
    pair = compared.pair(ast.parse(number.held, mode="eval").body, spot)
    return number.own(f" ({pair[1]}; {pair[0]} on {inside.name})" if pair is not None and pair[0] != pair[1] else "")


def _number(slice_: Slice, at: Spot, test: ast.expr, here: str | None, hops: int = _MOST_CALLS) -> LocalNumber | None:
    """Of a condition at a place, or of those by which a function of the program decides that it calls."""
    for name in names_of(test):
        node = next((item for item in nodes_of(test) if variable(item) == name), None)
        made = slice_.made(node, at, calls=True) if node is not None else None
        if made is None:
            continue
        item, held = _item_of(slice_, test, name, made), None
        if item is None and is_shared(slice_, name, at):
            continue
        if item is not None:
            name, made, held = item
        if _is_shared_there(slice_, made):
            continue
        taken = made.node if _takes_number(made.node) else None
        if taken is None and _asks_plainly(slice_, test, at):
            taken = _added_up(slice_, made) or _taken_by(test, name, made)
        if taken is not None:
            line = getattr(taken, "lineno", made.line)
            place = line_in(made.spot.file, line, here)
            part = part_of_data(slice_, structs.replace(made.spot, line=line), here)
            return LocalNumber(name, place, source(taken), _takes_number(taken), part, held)
    if hops == 0 or not _asks_plainly(slice_, test, at):
        return None
    inner = (_number(slice_, spot, asked, here, hops - 1) for spot, asked in _asked_inside(slice_, test, at))
    return next((found for found in inner if found is not None), None)


def _item_of(slice_: Slice, test: ast.expr, name: str, made: Made) -> tuple[str, Made, str | None] | None:
    """`logs[self.monitor]`, of a dict with one entry, or with that key: what is there, followed back.

    With the same of the variable that has the dict in the function that makes it.
    """
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
    if len(pairs) != 1 or _is_changed(slice_, name, made) or is_shared_value(slice_, pairs[0], made.spot):
        return None  # it has more entries
    holders = [node for node, spot in made.through if spot.scope is made.spot.scope and isinstance(node, ast.Name)]
    key = ast.unparse(asked.slice) if isinstance(asked.slice, ast.Constant) else None
    held = f"{ast.unparse(holders[-1])}[{key}]" if holders and key is not None else None
    return source(asked), slice_.made(pairs[0], made.spot, calls=True), held


def _is_changed(slice_: Slice, name: str, made: Made) -> bool:
    """Whether a line of the file sets an entry, or the function that makes the dict gives it to what may change it."""
    called = {variable(node) for node, spot in made.through if spot.scope is made.spot.scope} - {None}
    for item in nodes_of(made.spot.tree):
        sets = isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store)
        if sets and variable(item.value) in {name, *called}:  # type: ignore[attr-defined]
            return True
    for item in own_nodes(made.spot.scope):
        if not isinstance(item, ast.Call) or called.isdisjoint(variable(part) for part in nodes_of(item)):
            continue
        on = variable(item.func.value) if isinstance(item.func, ast.Attribute) else None
        own = slice_.function(item, made.spot)
        inside = [part for part in own_nodes(own[0]) if isinstance(part, ast.Call)] if own is not None else []
        if (on in called and called_name(item) in _CHANGES) or any(may_share(part) for part in (item, *inside)):
            return True
    return False


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
