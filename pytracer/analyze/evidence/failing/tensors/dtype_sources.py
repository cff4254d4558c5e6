"""Where a tensor got its dtype: the cast in the program that its values passed through, or the layer below autocast.

A result has a narrow dtype only where all that it was computed from has it: any operand's way back may be followed.
Of branches, each must lead to it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.failing.tensors.autocast import Autocast, keeps_dtype, lowered
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
    found = _Ways(at, dtype).back(node, spot) or []
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


_Places = Sequence[tuple[ast.AST, Spot]]


class _Ways:
    """The ways back from one value, each place once."""

    def __init__(self, at: FailingLine, dtype: str) -> None:
        self._at = at
        self._dtype = dtype
        self._seen: dict[tuple[int, int], list[Cast | Autocast] | None] = {}

    def back(self, item: ast.AST, place: Spot) -> list[Cast | Autocast] | None:
        """What made it so; None where a loop has come back to what is being followed."""
        key = (id(item), place.line)
        if key in self._seen:
            return self._seen[key]
        if len(self._seen) >= _MOST or not isinstance(item, ast.expr) or self._is_other(item, place):
            return []
        self._seen[key] = None
        self._seen[key] = found = self._found(item, place)
        return found

    def _found(self, item: ast.expr, place: Spot) -> list[Cast | Autocast] | None:
        cast = dtype_of_cast(item) or self._named(item, place)
        if cast is not None:
            return [Cast(item, place)] if cast == self._dtype else []
        autocast = lowered(self._at, item, place, self._dtype)
        if autocast is not None:
            return [autocast]
        return self._before(item, place)

    def _before(self, item: ast.expr, place: Spot) -> list[Cast | Autocast] | None:
        branches = self._branches(item, place)
        ways = [self.back(*step) for step in branches or self._operands(item, place)]
        if branches and any(way is not None and not way for way in ways):
            return []  # one of them may have come, and has it from elsewhere
        found = [item for way in ways if way is not None for item in way]
        return found if found or None not in ways else None

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

    def _operands(self, node: ast.expr, spot: Spot) -> _Places:
        """What it is computed from, all of it."""
        if isinstance(node, ast.Call):
            return self._passed(node, spot)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            step = self._at.slice.made(node, spot, calls=False)
            known = step.through and step.node is not node
            return [(step.node, step.spot) if known else (node.value, spot)]
        if isinstance(node, ast.BinOp):
            return [(item, spot) for item in (node.left, node.right)]
        return [(node.operand, spot)] if isinstance(node, ast.UnaryOp) else []

    def _branches(self, node: ast.expr, spot: Spot) -> _Places:
        """What it is, one of them."""
        if isinstance(node, ast.Name):
            return self._bound(node.id, spot)
        if isinstance(node, ast.IfExp):
            return [(item, spot) for item in (node.body, node.orelse)]
        return self._returned(node, spot) if isinstance(node, ast.Call) else []

    def _bound(self, name: str, spot: Spot) -> _Places:
        made = self._at.slice.made(ast.Name(name, ast.Load()), spot, calls=False)  # also an element of a tuple
        if made.through and not isinstance(made.node, ast.Name):
            return [(made.node, made.spot)]
        ways = reaching(spot.scope, name, spot.line) or frozenset()
        found: list[tuple[ast.AST, Spot]] = []
        for line, value in lines_that_bind(spot.scope, name):
            if value is not None and (line in ways or not ways):
                found.append((value, structs.replace(spot, line=line)))
        if is_parameter(spot.scope, name) and (not ways or 0 in ways):
            step = self._at.slice.argument(name, spot)
            if step is not None:
                found.append(step)
        return found

    def _returned(self, call: ast.Call, spot: Spot) -> _Places:
        found = self._at.slice.function(call, spot)
        if found is None:
            return []
        function, there = found
        return [
            (item.value, structs.replace(there, scope=function, line=item.lineno, depth=None, call=(call, spot)))
            for item in own_nodes(function)
            if isinstance(item, ast.Return) and item.value is not None
        ]

    def _passed(self, call: ast.Call, spot: Spot) -> _Places:
        """Not of layers with weights: those have it, too."""
        if called_name(call) in _AS_ANOTHER or self._at.slice.function(call, spot) or self._has_weights(call, spot):
            return []
        owner = [(call.func.value, spot)] if isinstance(call.func, ast.Attribute) else []
        return [*owner, *((item, spot) for item in passed_values(call) if isinstance(item, (*_TAKEN, ast.BinOp)))]

    def _has_weights(self, call: ast.Call, spot: Spot) -> bool:
        made = self._at.slice.made(call.func, spot, calls=True).node
        return made is not call.func and isinstance(made, ast.Call) and not keeps_dtype(made)


def cast_words(at: FailingLine, found: Cast | Autocast, dtype: str) -> str:
    """`` line 15 (`G.bfloat16()`) makes it bfloat16 ``, `` autocast (line 106) computes `F.linear(...)` in it ``."""
    if isinstance(found, Cast):
        line = getattr(found.node, "lineno", found.spot.line)
        return f"{at.place(found.spot, line).quoted(source(found.node))} makes it {dtype}"
    return f"below autocast ({at.place(found.entered, found.line)}) `{found.operation}` gives {dtype}"
