"""A size that comes from what each rank draws for itself: rows that a random mask keeps, a number of them at random.

Only what a draw decides is followed: of `rows[mask]` the mask, of `rows[:n]` the number. `rows[randperm(n)[:k]]` has as
many rows whatever is drawn, and so has `choice(rows, k)`. What one seed makes alike on all ranks is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.by_rank import SELECTING, before
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.data_numbers import is_size
from pytracer.analyze.evidence.slicing.defaulted import defaulted
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.draws import DRAWS, goes_by_rank, is_unseeded, library_drawn_from, seeded_by_rank
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.analyze.naming import line_in

_MOST = 120
_DRAW_MASKS = ("bernoulli", "bernoulli_", "binomial")
_OF_ITS_OWN = frozenset({"default_rng", "RandomState", "Random"})  # which begin at random without a seed
_MASKS = frozenset(
    {"isin", "in1d", "logical_and", "logical_or", "logical_not", "bool", "astype", "bernoulli", "eq", "lt"}
)
_CHOOSING = SELECTING | {"where", "flatnonzero", "compress", "query", "dropna"}
_BIT_OPERATIONS = (ast.BitAnd, ast.BitOr, ast.BitXor)
_GROWS = frozenset({"append", "extend", "add"})

_Role = Literal["size", "selector", "value"]  # of an expression: how long it is, what it selects, what it is


class DrawnSize(msgspec.Struct, frozen=True):
    """The call that draws. `seeded`: the line that seeds its generator by the rank, in words; else nothing seeds it."""

    call: ast.Call
    spot: Spot
    seeded: str | None
    library: str | None
    maker: tuple[int, str | None] | None = None
    """The line and file that make its generator, of one that the program makes."""

    @property
    def line(self) -> int:
        """Its line."""
        return self.call.lineno

    def words(self, here: str | None) -> str:
        """`` line 21 (`np.random.choice`) draws on each rank for itself: no line seeds `numpy` ``."""
        if self.seeded is not None:
            why = f"{self.seeded} seeds by the rank"
        else:
            made = f" ({line_in(self.maker[1], self.maker[0], here)})" if self._is_apart and self.maker else ""
            why = f"no line seeds {f'`{self.library}`' if self.library is not None else f'its generator{made}'}"
        where = line_in(self.spot.file, self.line, here)
        return f"{where} (`{source(self.call.func)}`) draws on each rank for itself: {why}"

    def maker_words(self, here: str | None) -> str:
        """What to do at the line of its generator."""
        made = f" ({line_in(self.maker[1], self.maker[0], here)})" if self._is_apart and self.maker else ""
        return f"seed its generator{made} alike" if made else "seed it alike"

    @property
    def _is_apart(self) -> bool:
        return self.maker is not None and self.maker != (self.line, self.spot.file)


class _Item(msgspec.Struct, frozen=True):
    """`instance`: the class of the program whose object a value is of, and the call that made that."""

    node: ast.AST
    spot: Spot
    role: _Role
    instance: tuple[ast.ClassDef, ast.Call, Spot] | None = None


def drawn_size(slice_: Slice, files: Mapping[str, ast.Module], node: ast.AST, spot: Spot) -> DrawnSize | None:
    """The nearest draw by which a size can differ between ranks.

    Args:
        slice_: Of a rank.
        files: Those of the program, whose lines may seed.
        node: What has the size.
        spot: Where it is read.
    """
    walk = _Walk(slice_, files)
    waiting = [_Item(node, spot, "size")]
    seen: set[tuple[str, int, int, str]] = set()
    while waiting and len(seen) < _MOST:
        item = waiting.pop(0)
        made = slice_.made(item.node, item.spot, calls=False)
        item = structs.replace(item, node=made.node, spot=_inside(made.spot, item.instance))
        key = (ast.unparse(item.node), id(item.spot.scope), item.spot.line, item.role)
        if key in seen or not isinstance(item.node, ast.expr):
            continue
        seen.add(key)
        found = walk.drawn(item)
        if found is not None:
            return found
        waiting += walk.behind(item)
    return None


def drawn_value(slice_: Slice, files: Mapping[str, ast.Module], call: ast.Call, spot: Spot) -> DrawnSize | None:
    """A call that itself draws what can differ between ranks, of whatever is made of it."""
    return _Walk(slice_, files).drawn(_Item(call, spot, "value"))


def _inside(spot: Spot, instance: tuple[ast.ClassDef, ast.Call, Spot] | None) -> Spot:
    """With the call that made the object, in its `__init__`."""
    of_init = isinstance(spot.scope, ast.FunctionDef) and spot.scope.name == "__init__" and spot.call is None
    if instance is None or not of_init or class_around(spot.tree, spot.scope) is not instance[0]:
        return spot
    return structs.replace(spot, call=instance[1:], depth=None)


class _Walk:
    def __init__(self, slice_: Slice, files: Mapping[str, ast.Module]) -> None:
        self._slice = slice_
        self._files = files

    def drawn(self, item: _Item) -> DrawnSize | None:
        """Where an expression is itself a call that draws, and what it is decides."""
        call, spot = item.node, item.spot
        if not isinstance(call, ast.Call) or called_name(call) not in DRAWS:
            return None
        if item.role == "size" or (item.role == "selector" and called_name(call) not in _DRAW_MASKS):
            return None
        given = keyword_value(call, "generator", "random_state")
        library = library_drawn_from(spot.tree, call)
        if given is None and library is not None:
            return self._of_library(call, spot, library)
        owner = call.func.value if isinstance(call.func, ast.Attribute) and given is None else given
        return self._of_generator(call, spot, owner) if owner is not None else None

    def _of_library(self, call: ast.Call, spot: Spot, library: str) -> DrawnSize | None:
        seed = seeded_by_rank(self._files, library)
        if seed is not None:
            return DrawnSize(call, spot, line_in(seed.file, seed.call.lineno, spot.file), library)
        if library == "numpy" and self._may_fork():
            return None  # `random` seeds anew in each child
        return DrawnSize(call, spot, None, library) if is_unseeded(self._files, library) else None

    def _may_fork(self) -> bool:
        """Whether the ranks may have been forked, so that each has the parent's generators in one state."""
        nodes = [item for tree in self._files.values() for item in nodes_of(tree)]
        methods = {item.value for item in nodes if isinstance(item, ast.Constant) and item.value in ("fork", "spawn")}
        starts = any(isinstance(item, ast.Call) and called_name(item) in ("Process", "Pool", "fork") for item in nodes)
        return "fork" in methods or (starts and "spawn" not in methods)

    def _of_generator(self, call: ast.Call, spot: Spot, owner: ast.expr) -> DrawnSize | None:
        """Of a generator of the program: with the rank in its seed, or one that begins at random."""
        made = defaulted(self._slice, self._slice.made(owner, spot, calls=True))
        maker = made.node
        if not isinstance(maker, ast.Call):
            return None
        name, seeding = called_name(maker), maker
        if name == "Generator" and not maker.args:
            held = {variable(node) for node, _ in made.through} | {variable(owner)}
            sets = (item for item in own_nodes(made.spot.scope) if isinstance(item, ast.Call))
            own = [item for item in sets if called_name(item) == "manual_seed" and _owner(item) in held - {None}]
            if len(own) != 1:
                return None
            seeding = own[0]
        elif name not in _OF_ITS_OWN | {"manual_seed", "Generator"}:
            return None
        given = passed_values(seeding)
        by_rank = goes_by_rank(made.spot.tree, seeding) or any(self._is_of_rank(item, made.spot) for item in given)
        if by_rank:
            return DrawnSize(call, spot, line_in(made.spot.file, seeding.lineno, spot.file), None)
        at = (maker.lineno, made.spot.file)
        random = name in _OF_ITS_OWN and not given and not self._may_fork()
        return DrawnSize(call, spot, None, None, at) if random else None

    def _is_of_rank(self, node: ast.expr, spot: Spot) -> bool:
        """Itself, or a variable in it, followed back."""
        parts = [part for part in nodes_of(node) if isinstance(part, (ast.Name, ast.Attribute))]
        return any(reads_rank(self._slice.made(part, spot, calls=True).node) for part in parts)

    def behind(self, item: _Item) -> Iterator[_Item]:
        """A step back, with the role of each part."""
        node, role = item.node, item.role
        if isinstance(node, ast.Subscript):
            yield structs.replace(item, node=node.value)
            yield from (structs.replace(item, node=part, role=of) for part, of in _selectors(node.slice))
        elif isinstance(node, COMPREHENSIONS):
            for part in node.generators:
                yield structs.replace(item, node=part.iter)
                yield from (structs.replace(item, node=test, role="value") for test in part.ifs)
        elif isinstance(node, ast.Call):
            yield from self._of_call(item, node)
        elif isinstance(node, (ast.Name, ast.Attribute)) or (isinstance(node, ast.List) and not node.elts):
            yield from (structs.replace(item, node=part, spot=at) for part, at in before(self._slice, node, item.spot))
            yield from _filling(item, node)
        else:
            inner: _Role = "size" if role == "size" else "value" if _is_mask(node) else role
            parts = (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
            yield from (structs.replace(item, node=part, role=inner) for part in parts)

    def _of_call(self, item: _Item, call: ast.Call) -> Iterator[_Item]:
        spot, role, name = item.spot, item.role, called_name(call)
        function = self._slice.function(call, spot)
        if function is not None:
            inside = structs.replace(function[1], scope=function[0], call=(call, spot), depth=None)
            yield from _deciding_yields(item, function[0], inside)
            if isinstance(call.func, ast.Attribute) and _returns_self(function[0]):
                yield structs.replace(item, node=call.func.value)
        defined = self._slice.defined(call.func, spot)
        owner = defined[0] if defined is not None else None
        if isinstance(owner, ast.ClassDef) and defined is not None:
            item = structs.replace(item, instance=(owner, call, spot))
            method = method_of(owner, ("__iter__",))
            if method is not None:
                yield from _deciding_yields(item, method, structs.replace(defined[1], scope=method, call=None))
        if name == "filter" and len(call.args) > 1 and isinstance(call.args[0], ast.Lambda):
            yield structs.replace(item, node=call.args[0].body, role="value")
        inner: _Role = "selector" if name in _CHOOSING and role == "size" else role
        inner = "value" if name in _MASKS and role == "selector" else inner
        for part, at in before(self._slice, call, spot):
            yield structs.replace(item, node=part, spot=at, role="value" if is_size(part, call) else inner)


def _selectors(node: ast.expr) -> Iterator[tuple[ast.expr, _Role]]:
    """What stands between the brackets: bounds are numbers, others masks or positions."""
    for part in node.elts if isinstance(node, ast.Tuple) else [node]:
        if isinstance(part, ast.Slice):
            yield from ((bound, "value") for bound in (part.lower, part.upper) if bound is not None)
        elif not isinstance(part, ast.Constant):
            yield part, "selector"


def _is_mask(node: ast.AST) -> bool:
    """`a > b`, `a | b`, `~a`."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, _BIT_OPERATIONS)
    inverts = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)
    return inverts or isinstance(node, (ast.Compare, ast.BoolOp))


def _filling(item: _Item, node: ast.AST) -> Iterator[_Item]:
    """What decides about lines that add to a list."""
    name, scope = variable(node), item.spot.scope
    held = {name} if name is not None else {variable(part) for part in _targets(scope, node)} - {None}
    for call in (part for part in own_nodes(scope) if isinstance(part, ast.Call) and called_name(part) in _GROWS):
        if _owner(call) in held:
            yield from _tests(item, item.spot, call.lineno)


def _targets(scope: ast.AST, value: ast.AST) -> Iterator[ast.expr]:
    for item in own_nodes(scope):
        if isinstance(item, ast.Assign) and item.value is value:
            yield from item.targets


def _deciding_yields(item: _Item, function: ast.FunctionDef, spot: Spot) -> Iterator[_Item]:
    for part in own_nodes(function):
        if isinstance(part, (ast.Yield, ast.YieldFrom)):
            yield from _tests(item, spot, part.lineno)


def _tests(item: _Item, spot: Spot, line: int) -> Iterator[_Item]:
    for test, _ in deciding_ifs(spot.tree, line):
        yield structs.replace(item, node=test.test, spot=structs.replace(spot, line=test.lineno), role="value")


def _returns_self(function: ast.FunctionDef) -> bool:
    returns = [item.value for item in own_nodes(function) if isinstance(item, ast.Return)]
    return bool(returns) and all(isinstance(item, ast.Name) and item.id == "self" for item in returns)


def _owner(call: ast.Call) -> str | None:
    return variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
