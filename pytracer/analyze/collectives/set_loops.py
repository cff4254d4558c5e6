"""Loops over a set around a collective: it has an order of its own in each process."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import capital, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, without_wrappers
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_LONGEST = 60
_DEEPEST = 2  # functions
_WRAPPERS = ("list", "tuple", "enumerate", "tqdm", "reversed", "iter")
_ADDS = ("append", "extend")
_NUMBERS = ("int", "len", "ord", "round")
_SET_METHODS = ("union", "difference", "intersection", "symmetric_difference")


class SetLoop(msgspec.Struct, frozen=True):
    """A loop over a set: its head, where the set is made, and what it goes through."""

    head: str
    made: str
    shown: str
    places: tuple[Place, ...] = ()

    @property
    def subject(self) -> str:
        """For the headline."""
        return f"{self.head} goes through a set{self.made}, probably in another order on each rank"

    @property
    def advice(self) -> str:
        """To sort it."""
        return (
            f"{capital(self.head)} goes through a set{self.made}, whose order differs between processes (hashes of "
            f"text are random in each): go through sorted({self.shown})."
        )


def set_loop(snapshot: Snapshot, frame: PythonFrame) -> SetLoop | None:
    """A loop over a set around the line, or in what such a loop takes its items from.

    `for bucket in self.buckets()`, whose `for name in self.names` goes through a set that the class keeps.
    """
    tree = syntax_tree(snapshot, frame)
    way = _Way(snapshot, Slice(snapshot, [frame]), frame.file)
    spot = way.slice.spot(0)
    if tree is None or frame.line is None or spot is None:
        return None
    for loop in reversed(loops_around(tree, frame.line)):
        if isinstance(loop, ast.While):
            continue
        inside = Spot(spot.file, spot.tree, scope_of(tree, loop.lineno), loop.lineno, spot.depth)
        found = _of_loop(way, loop.iter, inside, _DEEPEST)
        if found is not None:
            return found
    return None


class _Way(msgspec.Struct, frozen=True):
    """`here`: the file that is spoken of."""

    snapshot: Snapshot
    slice: Slice
    here: str | None

    def line(self, spot: Spot, line: int) -> str | None:
        """``line 45 (`for name in self.names:`)``."""
        text = quoted(self.snapshot, PythonFrame(file=spot.file, line=line), line)
        return f"{line_in(spot.file, line, self.here)} ({text})" if text is not None else None


def _of_loop(way: _Way, items: ast.expr, spot: Spot, depth: int) -> SetLoop | None:
    """Of a loop over `items`."""
    items = without_wrappers(items, _WRAPPERS)
    made = way.slice.made(items, spot, calls=False)
    node = without_wrappers(made.node, _WRAPPERS) if isinstance(made.node, ast.expr) else None
    if node is None:
        return None
    if _is_set(node):
        head, at = way.line(spot, items.lineno), way.line(made.spot, node.lineno)
        other = made.spot.scope is not spot.scope or node.lineno != items.lineno
        shown = shortened(ast.unparse(items), _LONGEST)
        if head is None:
            return None
        spots = ((spot.file, items.lineno), (made.spot.file, node.lineno))
        places = tuple((file, line) for file, line in spots if file is not None)
        return SetLoop(head, f" of {at}" if other and at is not None else "", shown, places)
    found = way.slice.function(node, made.spot) if isinstance(node, ast.Call) and depth else None
    inner = (_of_loop(way, *one, depth - 1) for one in (_loops_of(*found) if found is not None else ()))
    return next((item for item in inner if item is not None), None)


def _loops_of(function: ast.FunctionDef, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """The loops in which a function makes the items that it yields or returns, in the order of the loop."""
    given = [without_wrappers(item.value, _WRAPPERS) for item in own_nodes(function)
             if isinstance(item, (ast.Return, ast.YieldFrom)) and item.value is not None]  # fmt: skip
    names = {item.id for item in given if isinstance(item, ast.Name)} - _sorted_in(function)
    made = [value for item in own_nodes(function) for target, value in set_by(item)
            if isinstance(target, ast.Name) and target.id in names and isinstance(value, ast.expr)]  # fmt: skip
    for item in [*given, *(without_wrappers(value, _WRAPPERS) for value in made)]:
        if isinstance(item, (ast.ListComp, ast.GeneratorExp)):
            yield item.generators[0].iter, Spot(spot.file, spot.tree, function, item.generators[0].iter.lineno)
    for loop in own_nodes(function):
        if isinstance(loop, ast.For) and _makes_items(loop, names):
            yield loop.iter, Spot(spot.file, spot.tree, function, loop.iter.lineno)


def _sorted_in(function: ast.FunctionDef) -> set[str]:
    """`found.sort()`, `found = sorted(found)`."""
    calls = [item for item in own_nodes(function) if isinstance(item, ast.Call)]
    own = [item.func.value for item in calls if isinstance(item.func, ast.Attribute) and item.func.attr == "sort"]
    own += [target for item in own_nodes(function) for target, value in set_by(item)
            if isinstance(value, ast.Call) and called_name(value) == "sorted"]  # fmt: skip
    return {item.id for item in own if isinstance(item, ast.Name)}


def _makes_items(loop: ast.For, names: set[str]) -> bool:
    """`yield`, or what it appends to a list that the function returns."""
    return any(
        isinstance(item, (ast.Yield, ast.YieldFrom))
        or (
            isinstance(item, ast.Call)
            and isinstance(item.func, ast.Attribute)
            and item.func.attr in _ADDS
            and isinstance(item.func.value, ast.Name)
            and item.func.value.id in names
        )
        for item in nodes_of(loop)
    )


def _is_set(value: ast.expr) -> bool:
    if isinstance(value, ast.Set):
        return not all(map(_is_number, value.elts))
    if isinstance(value, ast.SetComp):
        return not _is_counted(value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)):
        return any(_is_set(side) for side in (value.left, value.right))
    called = value.func if isinstance(value, ast.Call) else None
    if isinstance(called, ast.Name):
        return called.id in ("set", "frozenset") and not _are_numbers(value.args)  # type: ignore[attr-defined]
    return isinstance(called, ast.Attribute) and called.attr in _SET_METHODS and _is_set(called.value)


def _is_counted(value: ast.SetComp) -> bool:
    """`{int(key) for key in keys}`, `{n for n in range(8)}`: numbers."""
    first = value.generators[0]
    if isinstance(value.elt, ast.Name) and ast.unparse(first.target) == value.elt.id:
        return _are_numbers([first.iter])
    return isinstance(value.elt, ast.Call) and called_name(value.elt) in _NUMBERS


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _are_numbers(given: Sequence[ast.AST]) -> bool:
    """`set(range(8))`, `set([3, 5])`: numbers have the same hash in each process."""
    node = given[0] if len(given) == 1 else None
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return all(map(_is_number, node.elts))
    if not isinstance(node, ast.Call):
        return False
    if called_name(node) == "map" and node.args:
        return last_name(node.args[0]) in _NUMBERS
    return called_name(node) in ("range", "tolist")
