"""Numbers that are taken out of the data of a process: a size that is made of one is another one on each rank.

`int(labels.max()) + 1`, `lengths.max().item()`, `len(set(names))`, `max(len(row) for row in rows)`. Where the ranks
agree on the number first (all_reduce() with MAX), it is the same on all of them.
"""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_OF_VALUES = frozenset({"max", "min", "amax", "amin", "sum", "count_nonzero", "argmax", "argmin"})
_TO_NUMBER = frozenset({"int", "item", "tolist"})
_SIZED = frozenset(
    {"zeros", "ones", "empty", "full", "rand", "randn", "eye", "arange", "linspace", "range", "new_zeros", "new_ones"}
    | {"new_empty", "new_full", "view", "reshape", "expand", "repeat", "narrow", "unflatten", "resize_", "pad"}
    | {"one_hot", "bincount", "histc", "topk", "interpolate", "to_dense", "sparse_coo_tensor", "broadcast_to"}
)
_BY_DIMENSIONS = frozenset(
    {"zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty", "view", "reshape"}
)
_SAME_SHAPE = frozenset(
    {"float", "double", "half", "bfloat16", "long", "int", "bool", "to", "cuda", "cpu", "clone", "detach", "contiguous"}
)
_OF_DATA = frozenset({"one_hot", "bincount", "histc", "topk", "interpolate", "pad", "narrow", "reshape", "unflatten"})
_MODULES = frozenset({"torch", "F", "nn.functional", "torch.nn.functional", "functional", "np", "numpy"})
_SETS = frozenset({"set", "frozenset", "Counter"})
_AGREE = frozenset(
    {
        "all_reduce",
        "broadcast",
        "broadcast_object_list",
        "all_gather_object",
        "reduce",
        "all_gather",
        "gather_for_metrics",
    }
)


def number_of_data(made: Made) -> ast.expr | None:
    """`int(labels.max())`, where a value is that, or was it on the way."""
    nodes = [node for node, _ in made.through] + [made.node]
    return next((node for node in nodes if isinstance(node, ast.Call) and _is_number(node)), None)


def is_size(part: ast.AST, node: ast.AST) -> bool:
    """Whether a part of an expression is a number that its size is made by: `k` of `zeros(k)`, `n` of `x[:n]`."""
    if isinstance(node, ast.Call):
        name = called_name(node)
        of_data = name in _OF_DATA and (isinstance(node.func, ast.Name) or _is_module(node.func))
        given = [*node.args[of_data:], *(item.value for item in node.keywords)]
        return name in _SIZED and any(part is inner for item in given for inner in nodes_of(item))
    slices = (item.slice for item in nodes_of(node) if isinstance(item, ast.Subscript))
    return any(part is inner for item in slices if isinstance(item, ast.Slice) for inner in nodes_of(item))


def of_dimension(node: ast.AST, dimension: int, dimensions: int) -> ast.expr | None:
    """`k` of `torch.zeros(n, k).float()` for dimension 1 of 2; None where the call does not list its sizes."""
    node = same_shape(node)
    if not isinstance(node, ast.Call) or called_name(node) not in _BY_DIMENSIONS:
        return None
    given = node.args[1:] if called_name(node) == "reshape" and _is_module(node.func) else node.args
    sizes = given[0].elts if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)) else given
    if len(sizes) != dimensions or any(isinstance(item, ast.Starred) for item in sizes):
        return None
    return sizes[dimension]


def same_shape(node: ast.AST) -> ast.AST:
    """What `x.float().cpu()` has its shape from: `x`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) in _SAME_SHAPE:
        node = node.func.value
    return node


def _is_module(function: ast.expr) -> bool:
    """`torch.bincount`, `F.pad`; not `x.view`."""
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) in _MODULES


def statement_of(node: ast.expr, tree: ast.Module) -> ast.AST:
    """`k = int(labels.max()) + 1`: the assignment that an expression is a part of, else the expression."""
    assigns = (item for item in nodes_of(tree) if isinstance(item, ast.Assign))
    return next((item for item in assigns if any(part is node for part in nodes_of(item.value))), node)


def is_agreed(made: Made) -> bool:
    """Whether a variable that a value was on the way, or was in, had been passed to a collective before."""
    held = ((node.value if isinstance(node, ast.Subscript) else node, spot) for node, spot in made.through)
    return any(isinstance(node, ast.Name) and is_passed_on(node.id, spot) for node, spot in held)


def is_passed_on(name: str, spot: Spot) -> bool:
    """Whether a line of the function above passes a variable to a collective by which the ranks agree."""
    return any(
        variable(part) == name
        for item in own_nodes(spot.scope)
        if isinstance(item, ast.Call) and called_name(item) in _AGREE and item.lineno < spot.line
        for given in item.args
        for part in nodes_of(given)
    )


def _is_number(call: ast.Call) -> bool:
    name = called_name(call)
    if name == "len" and len(call.args) == 1:
        held = call.args[0]
        return isinstance(held, (ast.Set, ast.SetComp)) or (
            isinstance(held, ast.Call) and isinstance(held.func, ast.Name) and held.func.id in _SETS
        )
    if name in ("max", "min") and isinstance(call.func, ast.Name):
        over = call.args[0] if len(call.args) == 1 else None
        return isinstance(over, (ast.GeneratorExp, ast.ListComp)) and _measures(over.elt)
    if name not in _TO_NUMBER:
        return False
    of = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0] if len(call.args) == 1 else None
    return isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and called_name(of) in _OF_VALUES


def _measures(element: ast.expr) -> bool:
    """`len(row)`, `row.shape[0]`, `row.size(0)`."""
    if isinstance(element, ast.Call):
        return called_name(element) in ("len", "size", "numel")
    return (
        isinstance(element, ast.Subscript)
        and isinstance(element.value, ast.Attribute)
        and (element.value.attr == "shape")
    )
