"""What a value loses its autograd graph by: a call, an attribute, a comparison, or a mode around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans_body

_CUTS = frozenset(
    {"detach", "detach_", "item", "tolist", "numpy", "argmax", "argmin", "argsort", "size", "dim", "numel"}
    | {"long", "int", "bool", "gt", "ge", "lt", "le", "eq", "ne", "isnan", "isinf", "isfinite"}
)
_BUILT_IN = frozenset({"len", "float", "str", "repr", "type", "id", "isinstance", "hasattr"})  # `x.float()` keeps it
_CUT_ATTRIBUTES = frozenset({"data", "shape", "dtype", "device", "ndim", "requires_grad"})
_NO_GRAPH = Pattern(r"\b(?:no_grad|inference_mode)\b|set_grad_enabled\((?:mode=)?False\)")


def with_graph(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression without what a detach(), a comparison or the like cuts off."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr in _CUT_ATTRIBUTES):
        return
    if isinstance(node, ast.Call) and _cuts(node):
        return
    yield node
    for item in ast.iter_child_nodes(node):
        yield from with_graph(item)


def _cuts(call: ast.Call) -> bool:
    name = called_name(call)
    return name in _CUTS or (isinstance(call.func, ast.Name) and name in _BUILT_IN)


def is_without_graph(scope: Scope, line: int) -> bool:
    """Below torch.no_grad(), or in a function that has it as decorator."""
    around = (item for item in own_nodes(scope) if isinstance(item, ast.With) and spans_body(item.body, line))
    modes = [part.context_expr for item in around for part in item.items]
    modes += scope.decorator_list if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    return any(_NO_GRAPH.search(ast.unparse(item)) for item in modes)
