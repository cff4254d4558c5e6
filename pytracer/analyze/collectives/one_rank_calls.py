"""What calls of torch.distributed leave in a variable, and on which ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.evidence.syntax.sharing import SHARING

_TO_ALL = frozenset(
    {"all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast_object_list"}
)
_FILLED = {"reduce": ("tensor", 0), "gather": ("gather_list", 1), "gather_object": ("object_gather_list", 1)}
_MODULES = ("dist", "torch.distributed", "distributed", "c10d")
_HANDS_ON = frozenset(
    {"send", "recv", "isend", "irecv", "scatter", "scatter_object_list", "send_object_list", "recv_object_list"}
    | {"set", "compare_set", "multi_set", "put"}
)
_IN_ORDER = ("list", "tuple", "enumerate", "sorted")
Shared = Literal["shared"]


def shared_by_name(name: str) -> Shared | None:
    """Of a function of a library."""
    return "shared" if any(part in name for part in SHARING) else None


def shared_by(call: ast.Call, name: str, tree: ast.Module) -> Literal["one", "all"] | None:
    """What a call of torch.distributed leaves in a variable: the result on one rank, or on all."""
    called = called_name(call) or ""
    module = (imported_as(tree, call.func) or ast.unparse(call.func)).rpartition(".")[0]
    if not module.startswith("torch.distributed") and module not in _MODULES:
        return None
    if called in _FILLED:
        keyword, place = _FILLED[called]
        value = argument_at(call, place, keyword)
        return "one" if value is not None and _holds(value, name) else None
    if called in _TO_ALL:
        return "all" if any(_holds(item, name) for item in passed_values(call)) else None
    return None


def items_of(scope: ast.AST, name: str, call: ast.Call) -> Iterator[str]:
    """`value` of `for value in metrics.values():` around a call: what it shares are the items of `metrics`."""
    for item in own_nodes(scope):
        loops: Sequence[ast.For | ast.AsyncFor | ast.comprehension] = ()
        if isinstance(item, (ast.For, ast.AsyncFor)):
            loops = [item] if spans(item, call.lineno) else []
        elif isinstance(item, ITEM_COMPREHENSIONS):
            loops = item.generators if any(part is call for part in nodes_of(item)) else []
        for loop in loops:
            if _goes_through(loop.iter, name):
                yield from (held for part in nodes_of(loop.target) if (held := variable(part)) is not None)


def _goes_through(node: ast.expr, name: str) -> bool:
    """`metrics`, `metrics.items()`, `enumerate(metrics.values())`."""
    if not isinstance(node, ast.Call):
        return variable(node) == name
    if isinstance(node.func, ast.Attribute):
        return not node.args and node.func.attr in ("values", "items") and variable(node.func.value) == name
    return called_name(node) in _IN_ORDER and len(node.args) == 1 and _goes_through(node.args[0], name)


def hands_on(call: ast.Call, name: str) -> bool:
    """`dist.send(plan, 1)`, `store.set("plan", plan)`: what the other ranks may get it by."""
    return called_name(call) in _HANDS_ON and any(_holds(item, name) for item in passed_values(call))


def _holds(value: ast.AST, name: str) -> bool:
    return any(variable(item) == name for item in nodes_of(value))


def root_of(call: ast.Call) -> str:
    """The rank that has the result of a reduce() or gather(), in words: `rank 0`."""
    place = 1 if called_name(call) == "reduce" else 2
    root = argument_at(call, place, "dst")
    if any(item.arg == "group_dst" for item in call.keywords):
        return "one rank"
    if root is None or isinstance(root, ast.Constant):
        return f"rank {source(root) if root is not None else 0}"
    return f"rank `{source(root)}`"
