"""Indices that an object keeps from an earlier call, and uses for an input that they were not made for.

`if self._edges is None: self._edges = edges`: what this call is given is only used by the first one. It counts where
the same argument of this call, as recorded, would have fitted; where that is too large itself, it is the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.reach import function_of, values_read
from pytracer.analyze.evidence.failing.not_finite.weights import updated
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function, class_around, own_nodes, parameters, spans_body

_HOPS = 8
_SAME = frozenset({"to", "long", "int", "cuda", "cpu", "contiguous", "clone", "detach", "view", "reshape", "flatten"})
_SAME_PARTS = _SAME | {"unbind", "t", "squeeze", "unsqueeze", "chunk", "split"}
_VALUES = Pattern(r" int\d+, (-?\d+)\.\.(-?\d+)$")
_MOST = 3


class _Kept(msgspec.Struct, frozen=True):
    """`attribute` is read at `read`; `line` of `method` sets it, once; `switches`: attributes that are asked, too.

    `again`: whether another method takes it away, so that it may be set again.
    """

    attribute: str
    read: Spot
    method: Function
    line: int
    switches: tuple[str, ...]
    again: bool


def kept_input(at: FailingLine, index: ast.expr, size: int) -> str | None:
    """The end of a sentence about the index: what keeps it, and what this call was given."""
    spot = at.slice.spot(0)
    for kept in _kept(at, index, spot) if spot is not None else ():
        given = _given(at, kept)
        if given is None or given[1] >= size:
            continue
        name, high = given
        switched = _switched_on(at, kept)
        perhaps = "" if updated(at) and not kept.again else "perhaps "
        return (
            f", {perhaps}kept from an earlier call: {at.place(kept.read, kept.read.line)} takes it from "
            f"`{kept.attribute}`, which {at.in_file(kept.read.file, kept.line)} sets once, for the first input, and "
            f"`{name}` of this call reaches {high} only. Make it for each call{switched}: what is kept fits one input "
            "alone."
        )
    return None


def _kept(at: FailingLine, node: ast.AST, spot: Spot) -> Iterator[_Kept]:
    """Attributes that a value is read from, each of which one method sets once."""
    waiting, seen = [(node, spot, 0)], set[int]()
    while waiting:
        item, place, hops = waiting.pop(0)
        if id(item) in seen or hops > _HOPS:
            continue
        seen.add(id(item))
        attribute = variable(item) or ""
        if attribute.startswith("self."):
            found = _set_once(attribute, place)
            if found is not None:
                yield found
            continue
        waiting += [(inner, where, hops + 1) for inner, where in _made_of(at, item, place)]


def _made_of(at: FailingLine, node: ast.AST, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What a value is, or is a part of."""
    if isinstance(node, ast.Name):
        yield from ((item.node, item.spot) for item in values_read(at, node.id, spot))
    elif isinstance(node, ast.Subscript):
        number = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(node.value, ast.Tuple) and type(number) is int and number < len(node.value.elts):
            yield node.value.elts[number], spot
        else:
            yield node.value, spot
    elif isinstance(node, (ast.IfExp, ast.BoolOp)):
        yield from (
            (item, spot) for item in (node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse))
        )
    elif isinstance(node, (ast.Attribute, ast.Starred, ast.NamedExpr)):
        yield node.value, spot
    elif isinstance(node, ast.Call):
        if called_name(node) in _SAME_PARTS and isinstance(node.func, ast.Attribute):
            yield node.func.value, spot
            return
        found = function_of(at, node, spot)
        if found is not None:
            function, place = found
            for item in own_nodes(function):
                if isinstance(item, ast.Return) and item.value is not None:
                    inside = structs.replace(place, scope=function, line=item.lineno, depth=None, call=(node, spot))
                    yield item.value, inside


def _set_once(attribute: str, read: Spot) -> _Kept | None:
    """By a line below an `if` that asks for the attribute, or for one that is set below it, too."""
    owner = class_around(read.tree, read.scope)
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    sets = [
        (method, node)
        for method in methods
        if method.name != "__init__"
        for node in own_nodes(method)
        if isinstance(node, ast.Assign) and attribute in _targets(node)
    ]
    cleared = [item for item in sets if is_none(item[1].value)]
    sets = [item for item in sets if item not in cleared]
    if len(sets) != 1:
        return None
    method, node = sets[0]
    tests = [item for item in own_nodes(method) if isinstance(item, ast.If) and _decides(item, node)]
    below = {name for item in tests for part in item.body for name in _all_set(part)} | {attribute}
    asked = {name for item in tests for name in _asked(item.test)}
    if not asked & below:
        return None
    return _Kept(attribute, read, method, node.lineno, tuple(sorted(asked - below)), bool(cleared))


def _decides(test: ast.If, node: ast.Assign) -> bool:
    """Whether the statement is in the `if`, or behind one that returns."""
    inside = any(spans_body(part, node.lineno) for part in (test.body, test.orelse))
    return inside or (test.lineno < node.lineno and isinstance(test.body[-1], ast.Return))


def _targets(node: ast.Assign) -> list[str]:
    found = [target for target, _ in each_set(node.targets, node.value)]
    parts = [part for item in found for part in (item.elts if isinstance(item, ast.Tuple) else [item])]
    return [variable(item.value if isinstance(item, ast.Subscript) else item) or "" for item in parts]


def _all_set(node: ast.AST) -> Iterator[str]:
    for item in nodes_of(node):
        if isinstance(item, ast.Assign):
            yield from _targets(item)


def _asked(test: ast.expr) -> Iterator[str]:
    """Attributes that a test reads, also by hasattr()."""
    for item in nodes_of(test):
        name = variable(item) or ""
        if name.startswith("self."):
            yield name
        if isinstance(item, ast.Call) and called_name(item) in ("hasattr", "getattr") and len(item.args) > 1:
            held = item.args[1]
            yield f"self.{held.value}" if isinstance(held, ast.Constant) and isinstance(held.value, str) else ""


def _given(at: FailingLine, kept: _Kept) -> tuple[str, int] | None:
    """An argument of indices of the method, with the largest as this call was given it."""
    depth = next((n for n in range(len(at.frames)) if (own := at.slice.spot(n)) and own.scope is kept.method), None)
    spot, inner = (at.slice.spot(depth), None) if depth is not None else (None, kept.read.call)
    if spot is None and kept.read.scope is kept.method and inner is not None:
        spot = kept.read
    found = [
        (name, int(values[2]))
        for name in (parameters(kept.method) if spot is not None else ())
        if (values := _VALUES.search(_passed(at, name, spot) or "")) is not None
    ]
    return found[0] if len(found) == 1 else None


def _passed(at: FailingLine, name: str, spot: Spot | None) -> str | None:
    """What the caller has as its value, or the caller's own caller; of one that is never set anew, the value itself."""
    for _ in range(_HOPS):
        step = at.slice.argument(name, spot) if spot is not None else None
        if step is None:
            return None
        node, spot = step
        value = at.value_at(node, spot)
        if value is not None or not isinstance(node, ast.Name):
            return value
        name = node.id
    return None


def _switched_on(at: FailingLine, kept: _Kept) -> str:
    """`` (without `cached=True`, lines 84 and 85) ``, of an attribute that is asked, too."""
    names: Sequence[str] = [item.removeprefix("self.") for item in kept.switches]
    found = {
        (file, item.lineno): ast.unparse(keyword)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call)
        for keyword in item.keywords
        if keyword.arg in names and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
    }
    if not 0 < len(found) <= _MOST or len(set(found.values())) != 1:
        return ""
    places = list_words([at.in_file(*key) for key in sorted(found)])
    return f" (without `{next(iter(found.values()))}`, {places})"
