"""What a value is part of: through conversions, loops and tuples, to the container or attribute that it was taken from.

By syntax alone. The parts on the way are kept: `row` of `row, col = edges[kind]` is item 0 of any item of `edges`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes, spans

KEEP_ALL = frozenset({
    "clone", "contiguous", "cpu", "detach", "flatten", "flip", "long", "ravel", "reshape", "squeeze", "t", "to", "type",
    "unsqueeze", "view", "as_tensor", "from_numpy", "int",
})  # fmt: skip
SORTS = frozenset({"sort", "unique", "unique_consecutive"})  # all values, in the first item where it returns several
_KEEP = (
    KEEP_ALL | SORTS | {"astype", "cuda", "numpy", "pin_memory", "tensor", "array", "asarray", "LongTensor", "tolist"}
)
_VIEWS = frozenset({"T", "mT"})
_ITERATES = frozenset({"sorted", "list", "tuple", "reversed", "iter", "tqdm", "trange"})
_JOINS = frozenset({"stack", "cat", "concatenate", "vstack", "hstack"})
_READS = frozenset({"get", "pop", "popleft"})
_MODULES = frozenset({"torch", "np", "numpy"})
_HOPS = 24
ANY = "any"  # a part of which only the program knows which one it is: `*`

Part = int | str | tuple[str]  # of a list or tuple, of a dict; `(ANY,)`: any
_ANY: Part = (ANY,)


class Element(msgspec.Struct, frozen=True):
    """`container` is an attribute, or a variable that holds a container which lines fill; `parts`: outermost first."""

    container: ast.Name | ast.Attribute
    spot: Spot
    parts: tuple[Part, ...]


def element_of(back: Slice, node: ast.expr, spot: Spot) -> Element | None:
    """None where the value is made otherwise, or where more than one way leads to it."""
    way = [*_way(back, node, spot)]
    node, spot, parts = way[-1]
    if len(way) > _HOPS:
        return None
    if isinstance(node, ast.Attribute):
        return Element(node, spot, parts)
    return _filled(node, spot, parts) if isinstance(node, ast.Name) else None


def way_of(back: Slice, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """The expressions that hand the value on, back from where it is read."""
    yield from ((node, spot) for node, spot, _ in _way(back, node, spot))


def _way(back: Slice, node: ast.expr, spot: Spot) -> Iterator[_Step]:
    """To an attribute, or to where it cannot be followed; one step more than _HOPS where it is too long."""
    parts: tuple[Part, ...] = ()
    for _ in range(_HOPS + 1):
        node, parts = _unwrapped(node, parts)
        yield node, spot, parts
        if isinstance(node, ast.Attribute):
            return
        step = _of_literal(node, spot, parts) or _of_call(back, node, spot, parts)
        if isinstance(node, ast.Name):
            step = _of_name(back, node, spot, parts)
        if step is None:
            return
        node, spot, parts = step


def inner_variable(value: ast.expr, spot: Spot, parts: tuple[Part, ...]) -> tuple[str, tuple[Part, ...]] | None:
    """`ids` of `{"ids": torch.from_numpy(ids)}`, where "ids" is the part that is read; with the parts that are left."""
    for _ in range(_HOPS):
        value, parts = _unwrapped(value, parts)
        name = variable(value)
        step = _of_literal(value, spot, parts) if name is None else None
        if step is None:
            return (name, parts) if name is not None else None
        value, _, parts = step
    return None


def looped_over(spot: Spot, name: str) -> tuple[ast.expr, tuple[Part, ...]] | None:
    """What the innermost loop or comprehension around a line goes through, whose variable it is, and the part of it."""
    heads: list[tuple[int, ast.expr, ast.expr]] = []
    for node in own_nodes(spot.scope):
        if isinstance(node, COMPREHENSIONS) and spans(node, spot.line):
            heads += [(node.lineno, item.target, item.iter) for item in node.generators]
        elif isinstance(node, (ast.For, ast.AsyncFor)) and spans(node, spot.line):
            heads.append((node.lineno, node.target, node.iter))
    named = [
        item for item in heads if any(isinstance(part, ast.Name) and part.id == name for part in nodes_of(item[1]))
    ]
    if not named or (last_binding(spot.scope, name, spot.line) or (0, None, None))[1] is not None:
        return None
    _, target, source = named[-1]
    while True:
        called = called_name(source) if isinstance(source, ast.Call) else None
        if not isinstance(source, ast.Call) or called not in ("enumerate", "items", "values", "keys", "zip", "tqdm"):
            break
        owner = source.func.value if isinstance(source.func, ast.Attribute) else None
        pair = target.elts if isinstance(target, ast.Tuple) else []
        if called == "values" and owner is not None:
            source = owner
            break
        if called == "tqdm" and source.args:
            source = source.args[0]
            continue
        places = [n for n, item in enumerate(pair) if any(getattr(part, "id", None) == name for part in nodes_of(item))]
        if called == "keys" or len(places) != 1:
            return None
        place = places[0]
        if called == "zip" and place < len(source.args):
            source, target = source.args[place], pair[place]
            continue
        if place != 1 or (called == "items" and owner is None) or (called == "enumerate" and not source.args):
            return None
        target = pair[1]
        if called == "items" and owner is not None:
            source = owner
            break
        source = source.args[0]
    path = _place_in(target, name)
    return (source, (_ANY, *path)) if path is not None else None


_Step = tuple[ast.expr, Spot, tuple[Part, ...]]


def _unwrapped(node: ast.expr, parts: tuple[Part, ...]) -> tuple[ast.expr, tuple[Part, ...]]:
    """`edges` of `edges[1].contiguous()`, with 1 among the parts."""
    while True:
        inner: ast.expr | None = None
        if isinstance(node, ast.Subscript):
            inner, parts = node.value, (_key(node.slice), *parts)
        elif isinstance(node, ast.Attribute) and (node.attr in _VIEWS or _is_sorted(node)):
            inner = node.value
        elif isinstance(node, ast.Call):
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            name = called_name(node)
            if isinstance(owner, ast.Name) and owner.id in _MODULES:
                owner = None
            if name in _READS and owner is not None:
                inner, parts = owner, (_key(node.args[0]) if node.args else _ANY, *parts)
            elif name in _KEEP or (name in _ITERATES and owner is None):
                inner = owner if owner is not None else next(iter(node.args), None)
                parts = parts[1:] if name in SORTS and parts[:1] == (0,) else parts
            elif name in _JOINS and node.args and isinstance(node.args[0], (ast.ListComp, ast.GeneratorExp)):
                inner, parts = node.args[0].elt, ()
        if inner is None:
            return node, parts
        node = inner


def _is_sorted(node: ast.Attribute) -> bool:
    """`x.sort().values`."""
    return node.attr == "values" and isinstance(node.value, ast.Call) and called_name(node.value) in SORTS


def _key(node: ast.expr) -> Part:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, str)) else _ANY


def _of_literal(node: ast.expr, spot: Spot, parts: tuple[Part, ...]) -> _Step | None:
    """`b` of `(a, b)[1]`, `{"x": a}["x"]`."""
    first = parts[0] if parts else None
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(first, int) and -len(node.elts) <= first < len(node.elts):
        return node.elts[first], spot, parts[1:]
    if isinstance(node, (ast.Tuple, ast.List)) and first == _ANY and len(node.elts) == 1:
        return node.elts[0], spot, parts[1:]  # any of one
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        found = [value for key, value in pairs if key is not None and _key(key) == first]
        return (found[0], spot, parts[1:]) if len(found) == 1 and first != _ANY else None
    return None


def _of_name(back: Slice, node: ast.Name, spot: Spot, parts: tuple[Part, ...]) -> _Step | None:
    looped = looped_over(spot, node.id)
    if looped is not None:
        return looped[0], spot, (*looped[1], *parts)
    last = last_binding(spot.scope, node.id, spot.line)
    if last is None:
        passed = back.argument(node.id, spot) if is_parameter(spot.scope, node.id) else None
        if passed is not None and isinstance(passed[0], ast.expr):
            return passed[0], passed[1], parts
        made = back.made(node, spot, calls=False) if passed is None else None
        known = made is not None and made.node is not node and isinstance(made.node, ast.expr)
        if made is None or not known or is_empty_container(made.node):
            return None
        return made.node, made.spot, parts  # type: ignore[return-value]
    line, value, place = last
    if not isinstance(value, ast.expr) or is_empty_container(value):
        return None
    if place is not None and isinstance(value, ast.Call) and called_name(value) in SORTS:
        return (value, structs.replace(spot, line=line), parts) if place == 0 else None
    return value, structs.replace(spot, line=line), parts if place is None else (place, *parts)


def _of_call(back: Slice, node: ast.expr, spot: Spot, parts: tuple[Part, ...]) -> _Step | None:
    """What a function of the program returns, and the samples of a DataLoader without a function that collates."""
    if not isinstance(node, ast.Call):
        return None
    if called_name(node) == "DataLoader" and keyword_value(node, "collate_fn") is None and parts:
        given = keyword_value(node, "dataset") or next(iter(node.args), None)
        owner = back.class_of(given, spot) if given is not None else None
        method = _method(owner[0], "__getitem__") if owner is not None else None
        returned = _returned(method) if method is not None else None
        if method is None or returned is None or owner is None:
            return None
        there = structs.replace(owner[1], scope=method, line=returned.lineno + 1, depth=None, call=None)
        return returned, there, parts[1:]
    made = back.returned(node, spot)
    return (made[0], made[1], parts) if made is not None and isinstance(made[0], ast.expr) else None


def _method(owner: ast.AST, name: str) -> ast.FunctionDef | None:
    body = owner.body if isinstance(owner, ast.ClassDef) else ()
    return next((item for item in body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _returned(method: ast.FunctionDef) -> ast.expr | None:
    found = [item.value for item in own_nodes(method) if isinstance(item, ast.Return)]
    return found[0] if len(found) == 1 else None


def _filled(node: ast.Name, spot: Spot, parts: tuple[Part, ...]) -> Element | None:
    """A variable that begins as an empty list or dict."""
    last = last_binding(spot.scope, node.id, spot.line)
    return Element(node, spot, parts) if last is not None and is_empty_container(last[1]) and parts else None


def _place_in(target: ast.expr, name: str) -> tuple[Part, ...] | None:
    """`(1,)` of `y` in `x, y`."""
    if isinstance(target, ast.Name):
        return () if target.id == name else None
    if isinstance(target, (ast.Tuple, ast.List)):
        for place, item in enumerate(target.elts):
            inner = _place_in(item, name)
            if inner is not None:
                return (place, *inner)
    return None
