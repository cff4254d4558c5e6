"""Where a tensor got its dtype: the cast in the program that its values passed through, or the layer below autocast.

A result has a narrow dtype only where all that it was computed from has it: any operand's way back may be followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.failing.tensors.autocast import Autocast, lowered
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes

_MOST = 80
_METHODS = {"half": "float16", "bfloat16": "bfloat16", "double": "float64", "float": "float32"}
_ALIASES = {"half": "float16", "float": "float32", "double": "float64"}
_CONVERTS = frozenset({"to", "type", "astype"})
_DTYPE = Pattern(r"torch\.(\w+)")
_AS_ANOTHER = frozenset({"to", "type", "type_as", "item", "tolist", "size", "dim", "numel", "len", "float", "int"})
_TAKEN = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)


class Cast(msgspec.Struct, frozen=True):
    """`X = G.bfloat16()`."""

    node: ast.expr
    spot: Spot


def dtype_source(at: FailingLine, node: ast.expr, dtype: str) -> Cast | Autocast | None:
    """The only cast to a dtype on the way of a value of the failing line; else what autocast computed in it."""
    spot = at.slice.spot(0)
    if spot is None:
        return None
    found = [*_Ways(at, dtype).back(node, spot)]
    casts = {id(item.node): item for item in found if isinstance(item, Cast)}
    if casts:
        return casts.popitem()[1] if len(casts) == 1 else None
    return found[0] if found else None


def dtype_of_cast(node: ast.expr) -> str | None:
    """`bfloat16` of `x.bfloat16()`, `x.to(torch.bfloat16)` and `torch.zeros(3, dtype=torch.bfloat16)`."""
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node) or ""
    if name in _METHODS and isinstance(node.func, ast.Attribute) and not node.args:
        return _METHODS[name]
    given = node.args if name in _CONVERTS else []
    for item in (*given, *(part.value for part in node.keywords if part.arg == "dtype")):
        named = dtype_named(item)
        if named is not None:
            return named
    return None


def dtype_named(node: ast.AST) -> str | None:
    """`float16` of `torch.half`."""
    found = _DTYPE.fullmatch(ast.unparse(node)) if isinstance(node, ast.Attribute) else None
    return _ALIASES.get(found[1], found[1]) if found is not None else None


class _Ways:
    """The ways back from one value, each place once."""

    def __init__(self, at: FailingLine, dtype: str) -> None:
        self._at = at
        self._dtype = dtype
        self._seen: set[tuple[int, int]] = set()

    def back(self, node: ast.AST, spot: Spot) -> Iterator[Cast | Autocast]:
        waiting: list[tuple[ast.AST, Spot]] = [(node, spot)]
        while waiting and len(self._seen) < _MOST:
            item, place = waiting.pop(0)
            key = (id(item), place.line)
            if key in self._seen or not isinstance(item, ast.expr) or self._is_other(item, place):
                continue
            self._seen.add(key)
            cast = dtype_of_cast(item) or self._named(item, place)
            if cast is not None:
                if cast == self._dtype:
                    yield Cast(item, place)
                continue
            autocast = lowered(self._at, item, place, self._dtype)
            if autocast is not None:
                yield autocast
                continue
            waiting += self._steps(item, place)

    def _named(self, node: ast.expr, spot: Spot) -> str | None:
        """`x.to(DTYPE)`, of a variable that one line sets."""
        if not isinstance(node, ast.Call):
            return None
        given = node.args[:1] if called_name(node) in _CONVERTS else []
        for item in (*given, *(part.value for part in node.keywords if part.arg == "dtype")):
            named = dtype_named(self._at.slice.made(item, spot, calls=False).node)
            if named is not None:
                return named
        return None

    def _is_other(self, node: ast.expr, spot: Spot) -> bool:
        """Whether the recording has it with another dtype."""
        shape = shape_of(self._at.value_at(node, spot))
        return shape is not None and shape.dtype != self._dtype and spot.line == self._line(spot)

    def _line(self, spot: Spot) -> int | None:
        """Of the frame of a spot: what is recorded is of that line."""
        frame = self._at.frames[spot.depth] if spot.depth is not None else None
        return frame.line if frame is not None else None

    def _steps(self, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        if isinstance(node, ast.Name):
            yield from self._bound(node.id, spot)
        elif isinstance(node, ast.Call):
            yield from self._called(node, spot)
        elif isinstance(node, ast.Attribute):
            step = self._at.slice.made(node, spot, calls=False)
            known = step.through and step.node is not node
            yield (step.node, step.spot) if known else (node.value, spot)
        elif isinstance(node, ast.Subscript):
            step = self._at.slice.made(node, spot, calls=False)
            yield (step.node, step.spot) if step.through and step.node is not node else (node.value, spot)
        elif isinstance(node, ast.IfExp):
            yield from ((item, spot) for item in (node.body, node.orelse))
        elif isinstance(node, ast.BinOp):
            yield from ((item, spot) for item in (node.left, node.right))
        elif isinstance(node, ast.UnaryOp):
            yield node.operand, spot

    def _bound(self, name: str, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        made = self._at.slice.made(ast.Name(name, ast.Load()), spot, calls=False)  # also an element of a tuple
        if made.through and not isinstance(made.node, ast.Name):
            yield made.node, made.spot
            return
        ways = reaching(spot.scope, name, spot.line) or frozenset()
        for line, value in lines_that_bind(spot.scope, name):
            if value is not None and (line in ways or not ways):
                yield value, structs.replace(spot, line=line)
        if is_parameter(spot.scope, name) and (not ways or 0 in ways):
            step = self._at.slice.argument(name, spot)
            if step is not None:
                yield step

    def _called(self, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        found = self._at.slice.function(call, spot)
        if found is not None:
            function, there = found
            for item in own_nodes(function):
                if isinstance(item, ast.Return) and item.value is not None:
                    inside = structs.replace(there, scope=function, line=item.lineno, depth=None, call=(call, spot))
                    yield item.value, inside
            return
        if called_name(call) in _AS_ANOTHER:
            return
        if isinstance(call.func, ast.Attribute):
            yield call.func.value, spot
        yield from ((item, spot) for item in passed_values(call) if isinstance(item, (*_TAKEN, ast.BinOp)))


def cast_words(at: FailingLine, found: Cast | Autocast, dtype: str) -> str:
    """`` line 15 (`G.bfloat16()`) makes it bfloat16 ``, `` autocast (line 106) computes `F.linear(...)` in it ``."""
    if isinstance(found, Cast):
        line = getattr(found.node, "lineno", found.spot.line)
        return f"{at.place(found.spot, line).quoted(source(found.node))} makes it {dtype}"
    return f"below autocast ({at.place(found.entered, found.line)}) `{found.operation}` gives {dtype}"
