"""The tensor that an optimizer refuses because an operation made it: which of those that it is given, and where."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_REFUSED = "can't optimize a non-leaf Tensor"
_HOPS, _MOST = 8, 16
_LISTS = frozenset({"list", "tuple", "chain", "filter", "iter", "reversed", "sorted"})
_ADDS = frozenset({"append", "extend", "insert", "add"})
_LEAVES = frozenset(
    {
        *("Parameter", "UninitializedParameter", "detach", "detach_", "tensor", "as_tensor", "from_numpy", "Tensor"),
        *("rand", "randn", "randint", "zeros", "ones", "empty", "full", "eye", "arange", "linspace", "normal"),
        *("rand_like", "randn_like", "zeros_like", "ones_like", "empty_like", "full_like"),
        *("parameters", "named_parameters", "buffers", "children", "modules"),
    }
)
_COPIES = frozenset({"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type", "clone", "contiguous"})
_VIEWS = frozenset(
    {"view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "t", "flatten", "expand", "chunk"}
)
_SAME = frozenset({"requires_grad_", "retain_grad"})
_LONG = 32


class _Item(msgspec.Struct, frozen=True):
    """An expression that is given to the optimizer. `each`: of a list's items all."""

    node: ast.expr
    spot: Spot
    each: bool


def non_leaf(at: FailingLine) -> str | None:
    """Named where one expression made all that is given, or one of them is seen to be the result of an operation."""
    if _REFUSED not in at.message:
        return None
    call, spot = at.only(ast.Call), at.slice.spot(0)
    given = argument_at(call, 0, "params", "param_group") if call is not None else None
    if given is None or spot is None:
        return None
    items = [*_items(at, given, spot)][:_MOST]
    computed = [item for item in items if not _is_leaf(item.node)]
    if len(computed) != 1:
        return None
    return _words(at, given, computed[0])


def _items(at: FailingLine, node: ast.AST, spot: Spot, hops: int = _HOPS, *, each: bool = False) -> Iterator[_Item]:
    """What an expression for the parameters holds."""
    if hops == 0:
        return
    filled = _filled(node, spot)
    if filled:
        for line, part in filled:
            yield from _element(at, part, structs.replace(spot, line=line), hops - 1, each=True)
        return
    made = at.slice.made(node, spot, calls=True)
    node, spot = made.node, made.spot
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        for part in node.elts:
            yield from _element(at, part, spot, hops - 1, each=each)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "params":
                yield from _items(at, value, spot, hops - 1, each=each)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        yield from _element(at, node.elt, structs.replace(spot, line=node.lineno), hops - 1, each=True, heads=node)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for part in (node.left, node.right):
            yield from _items(at, part, spot, hops - 1, each=each)
    elif isinstance(node, ast.Call) and called_name(node) in _LISTS:
        for part in node.args[called_name(node) == "filter" :]:
            yield from _items(at, part, spot, hops - 1, each=each)
    elif isinstance(node, ast.expr) and not isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
        yield _Item(node, spot, each)


def _element(
    at: FailingLine, node: ast.expr, spot: Spot, hops: int, *, each: bool, heads: ast.expr | None = None
) -> Iterator[_Item]:
    """One item of a list: a tensor, a group, or what `*rest` unpacks."""
    if isinstance(node, ast.Starred):
        yield from _items(at, node.value, spot, hops, each=True)
        return
    for head in getattr(heads, "generators", []):
        if isinstance(node, ast.Name) and holds(head.target, node.id):  # `[p for p in tensors if p.requires_grad]`
            yield from _items(at, head.iter, spot, hops, each=True) if variable(head.target) else ()
            return
    if isinstance(node, ast.Dict):
        yield from _items(at, node, spot, hops, each=each)
        return
    yield from _tensor(at, node, spot, each=each)


def _tensor(at: FailingLine, node: ast.expr, spot: Spot, *, each: bool) -> Iterator[_Item]:
    """The expression that made it, without what returns the same tensor."""
    for _ in range(_HOPS):
        made = at.slice.made(node, spot, calls=False)
        if not isinstance(made.node, ast.expr):
            return
        node, spot = made.node, made.spot
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME):
            break
        node = node.func.value
    yield _Item(node, spot, each)


def _filled(node: ast.AST, spot: Spot) -> list[tuple[int, ast.expr]]:
    """The line and the argument of each `params.append(x)` of this function, of a list that begins empty."""
    name = variable(node)
    bound = [value for line, value in lines_that_bind(spot.scope, name or "") if line < spot.line]
    if name is None or len(bound) != 1 or not isinstance(bound[0], (ast.List, ast.Call)):
        return []
    calls = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and item.lineno < spot.line)
    return [
        (item.lineno, item.args[-1])
        for item in calls
        if isinstance(item.func, ast.Attribute) and item.func.attr in _ADDS and variable(item.func.value) == name
        if item.args
    ]


def _is_leaf(node: ast.expr) -> bool:
    """A parameter, what a factory makes, what detach() gives; or nothing that shows an operation."""
    if isinstance(node, ast.Call):
        called = called_name(node)
        if called == "clone" and isinstance(node.func, ast.Attribute):
            return isinstance(node.func.value, ast.Call) and called_name(node.func.value) in ("detach", "detach_")
        return called in _LEAVES
    return isinstance(node, (ast.Name, ast.Attribute, ast.Constant))


def _words(at: FailingLine, given: ast.expr, item: _Item) -> str | None:
    node, text = item.node, source(item.node)
    kind = _kind(at, node, item.spot)
    if kind is None:
        return None
    place = at.place(item.spot, node.lineno)
    owner = source(given)
    has = f"`{owner}` holds `{text}` ({place})" if item.each and owner != text else f"`{text}` ({place})"
    begin = f"{has}, {kind}," if item.each and owner != text else f"{has} is {kind},"
    whole = text if isinstance(node, (ast.Call, ast.Subscript)) else f"({text})"
    leaf = f"`{whole if len(text) <= _LONG else ''}.detach().clone().requires_grad_()`"
    if any(isinstance(part, ast.keyword) and part.arg == "requires_grad" for part in nodes_of(node)):
        last = " Where it is new, compute it without requires_grad=, and call requires_grad_() last."
    else:
        last = " Or give the optimizer the parameters that it is computed from."
    return (
        f"{begin} and no leaf: a step would change that result only. Make a leaf of it there by {leaf}, and compute "
        f"the loss from that one.{last}"
    )


def _kind(at: FailingLine, node: ast.expr, spot: Spot) -> str | None:
    if isinstance(node, ast.Subscript):
        value = at.value_at(node.value, spot) if spot.depth is not None else None
        sliced = any(isinstance(part, ast.Slice) for part in nodes_of(node.slice))
        tensor = shape_of(value) is not None or (isinstance(node.slice, ast.Tuple) and sliced)
        return f"a part of the tensor `{source(node.value)}`" if tensor else None
    if isinstance(node, ast.Call):
        name = called_name(node)
        if name in _COPIES and isinstance(node.func, ast.Attribute):
            return f"a copy by {name}()"
        made = "a view by" if name in _VIEWS else "the result of"
        return f"{made} {name}()" if name is not None else None
    return "the result of an operation" if isinstance(node, (ast.BinOp, ast.UnaryOp)) else None
