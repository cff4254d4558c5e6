"""Gradients that a line packs into one tensor, and that leaves out those that are None on a rank.

A parameter that the loss of a step did not use has no gradient, and which these are can differ by rank. The packed
tensors then have other sizes; padding one does not help, since all behind the missing part is of other parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._text import capital, list_words
from pytracer.analyze.collectives.absent_gradients import Absent, absent_gradients, models_differ
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.sizes import Side, passed_tensor
from pytracer.analyze.collectives.ways import quoted, way_to
from pytracer.analyze.evidence.slicing.by_rank import values_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.gradients import is_gradient, tested_for_none
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, deciding_ifs, last_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in
from pytracer.report.job import PythonFrame

_PACK = ("cat", "concat", "concatenate", "hstack", "stack", "_flatten_dense_tensors", "parameters_to_vector")
_SAME = ("view", "reshape", "flatten", "ravel", "contiguous", "detach", "clone", "numpy", "from_numpy", "getattr")
_TYPES = ("to", "float", "double", "half", "bfloat16", "type", "cpu", "cuda", "div", "mul", "div_", "mul_")
_ITERATE = ("list", "tuple", "filter", "zip", "chain", "from_iterable", "values", "items", "reversed", "enumerate")
_KEEP = frozenset({*_PACK, *_SAME, *_TYPES, *_ITERATE})
_FILLS = ("append", "extend", "add")
_MOST = 40

_Place = tuple[ast.AST, Spot]


class Packing(msgspec.Struct, frozen=True):
    """The line that packs gradients which are not None. `absent`: which had none, where that is recorded."""

    place: str
    text: str | None
    absent: tuple[Absent, ...]

    @property
    def subject(self) -> str:
        """For the headline."""
        had = " and ".join(_had(item) for item in self.absent)
        if had:
            return f"{self.place} packs only gradients that are not None, and {had}"
        return f"{self.place} packs only gradients that are not None, and these may be of other parameters on each rank"

    @property
    def advice(self) -> str:
        """What to change there."""
        text = f" ({self.text})" if self.text is not None else ""
        return (
            f"Pack the gradients of all parameters on every rank. {capital(self.place)}{text} leaves out those that "
            "are None, and a loss that does not use a parameter gives it none: set these to zeros first (`p.grad = "
            "torch.zeros_like(p)`), or let DistributedDataParallel with find_unused_parameters=True average them. Do "
            "not pad or cut the packed tensor: all behind the missing part would be added to gradients of other "
            "parameters."
        )


def _had(item: Absent) -> str:
    return f"{list_words([f'`{name}`' for name in item.names])} had none on rank {item.rank}"


def packing_of(first: Side, second: Side) -> Packing | None:
    """Of two ranks that passed tensors of other sizes from one line; None where their models differ."""
    if site_of(first[1]) is None or site_of(first[1]) != site_of(second[1]) or models_differ(first, second):
        return None
    for view, call in (first, second):
        passed = passed_tensor(view, call)
        way = way_to(view, call)[::-1]
        found = _Packed(Slice(view.process.snapshot, way)).filter_of(*passed) if passed is not None else None
        if found is None or passed is None:
            continue
        node, spot = found
        place = line_in(spot.file, node.lineno, passed[1].file)
        text = quoted(view.process.snapshot, PythonFrame(file=spot.file, line=node.lineno), node.lineno)
        return Packing(place, text, absent_gradients(first, second))
    return None


class _Packed:
    """What a tensor is packed of, followed back over all that its parts can come from."""

    def __init__(self, slice_: Slice) -> None:
        self._slice = slice_
        self._filters: dict[tuple[str | None, int], tuple[ast.expr, Spot, ast.expr]] = {}
        self._has_gradients = False

    def filter_of(self, node: ast.AST, spot: Spot) -> tuple[ast.expr, Spot] | None:
        """The only test for None that leaves parts out, and these are gradients."""
        waiting: list[_Place] = [(node, spot)]
        seen: set[tuple[str, int, int]] = set()
        while waiting and len(seen) < _MOST:
            item, place = waiting.pop(0)
            key = (ast.unparse(item), id(place.scope), place.line)
            if key in seen:
                continue
            seen.add(key)
            waiting += self._before(item, place)
        if len(self._filters) != 1:
            return None
        test, at, tested = next(iter(self._filters.values()))
        return (test, at) if is_gradient(tested) or self._has_gradients else None

    def _before(self, node: ast.AST, spot: Spot) -> Iterator[_Place]:
        """A step back; what is met on the way is noted."""
        if isinstance(node, ast.Name):
            self._fills(node.id, spot)
            yield from values_of(node.id, spot)
            return
        for item in self._parts(node, spot):
            self._has_gradients |= is_gradient(item)
            if isinstance(item, COMPREHENSIONS):
                for test in (test for part in item.generators for test in part.ifs):
                    self._note(test, item, spot, absent=False)
            if isinstance(item, ast.Call):
                if called_name(item) == "filter" and item.args and isinstance(item.args[0], ast.Lambda):
                    self._note(item.args[0].body, item, spot, absent=False)
                yield from self._returned(item, spot)
            if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
                yield item, spot
            elif isinstance(item, ast.Attribute) and variable(item) is not None:
                made = self._slice.made(item, spot, calls=False)
                if made.node is not item:
                    yield made.node, made.spot

    def _parts(self, node: ast.AST, spot: Spot) -> Iterator[ast.AST]:
        """Of an expression without what library functions compute from it, other than packing, views and types."""
        yield node
        if isinstance(node, ast.Call) and called_name(node) not in _KEEP and self._slice.function(node, spot) is None:
            return
        for item in ast.iter_child_nodes(node):
            yield from self._parts(item, spot)

    def _returned(self, call: ast.Call, spot: Spot) -> Iterator[_Place]:
        """What a function of the program returns or yields."""
        found = self._slice.function(call, spot)
        if found is None:
            return
        function, at = found
        inside = structs.replace(at, scope=function, depth=None, call=(call, spot))
        for item in own_nodes(function):
            if isinstance(item, (ast.Return, ast.Yield)) and item.value is not None:
                if isinstance(item, ast.Yield):
                    self._around(item.lineno, inside)
                yield item.value, structs.replace(inside, line=item.lineno)

    def _fills(self, name: str, spot: Spot) -> None:
        """Branches around what fills a list, or a list in a dict."""
        for item in own_nodes(spot.scope):
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _FILLS:
                if _owner(item.func.value) == name and any(_may_be_gradient(part) for part in item.args):
                    self._around(item.lineno, spot)
            elif isinstance(item, ast.AugAssign) and variable(item.target) == name:
                self._around(item.lineno, spot)

    def _around(self, line: int, spot: Spot) -> None:
        for item, around in deciding_ifs(spot.tree, line):
            inside = around and item.body[0].lineno <= line <= (item.body[-1].end_lineno or 0)
            if inside or (not around and isinstance(last_of(item.body), ast.Continue)):
                self._note(item.test, item.test, spot, absent=not inside)

    def _note(self, test: ast.expr, at: ast.expr, spot: Spot, *, absent: bool) -> None:
        """`p.grad is not None` of what is packed, `p.grad is None` of what is left out."""
        for tested in tested_for_none(test, absent=absent):
            self._filters[(spot.file, at.lineno)] = (at, spot, tested)


def _may_be_gradient(node: ast.AST) -> bool:
    return any(is_gradient(item) or isinstance(item, ast.Name) for item in nodes_of(node))


def _owner(node: ast.expr) -> str | None:
    """`buckets` of `buckets[kind]` and of `buckets.setdefault(kind, [])`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault":
            node = node.func.value
        else:
            return variable(node)
