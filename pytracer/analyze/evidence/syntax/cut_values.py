"""What a value loses its autograd graph by: a call, an attribute, a comparison, or a mode around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans_body

_CUTS = frozenset(
    {"detach", "detach_", "item", "tolist", "numpy", "argmax", "argmin", "argsort", "size", "dim", "numel"}
    | {"long", "int", "bool", "gt", "ge", "lt", "le", "eq", "ne", "isnan", "isinf", "isfinite"}
    | {"sample_n", "multinomial", "one_hot"}
)
_WITH_INDICES = frozenset({"topk", "sort", "kthvalue", "mode", "cummax", "cummin"})
_MAYBE_WITH_INDICES = frozenset({"max", "min", "median", "nanmedian"})  # with a dimension
_BUILT_IN = frozenset({"len", "float", "str", "repr", "type", "id", "isinstance", "hasattr"})  # `x.float()` keeps it
_CUT_ATTRIBUTES = frozenset({"data", "shape", "dtype", "device", "ndim", "requires_grad", "indices"})
_SWITCHES = ("no_grad", "inference_mode", "set_grad_enabled")
_NO_GRAPH = Pattern(r"\b(?:no_grad|inference_mode)\b|set_grad_enabled\((?:mode=)?False\)")


def with_graph(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression without what a detach(), a comparison or the like cuts off."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr in _CUT_ATTRIBUTES):
        return
    if isinstance(node, ast.Call) and _cuts(node):
        return
    if isinstance(node, ast.Subscript) and is_of_indices(node.value, constant_index(node.slice)):
        return
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        if next(with_graph(element), None) is None:
            return
    yield node
    for item in ast.iter_child_nodes(node):
        yield from with_graph(item)


def is_of_indices(value: ast.AST, part: int | None) -> bool:
    """Whether that part is the second of what `q.max(1)`, `x.topk(3)` return: integers."""
    if part not in (1, -1) or not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    name = called_name(value)
    if name in _WITH_INDICES:
        return True
    own = value.args[ast.unparse(value.func.value) == "torch" :]
    dimension = own[0] if own else keyword_value(value, "dim")
    return name in _MAYBE_WITH_INDICES and dimension is not None and constant_index(dimension) is not None


def constant_index(node: ast.AST) -> int | None:
    """`1`, `-1`."""
    try:
        found = ast.literal_eval(node) if isinstance(node, (ast.Constant, ast.UnaryOp)) else None
    except ValueError:
        return None
    return found if type(found) is int else None


def _cuts(call: ast.Call) -> bool:
    name = called_name(call)
    if name == "sample" and isinstance(call.func, ast.Attribute):  # a policy's own takes states
        return all(isinstance(item, (ast.Tuple, ast.List, ast.Constant)) for item in call.args)
    return name in _CUTS or (isinstance(call.func, ast.Name) and name in _BUILT_IN)


def is_without_graph(scope: Scope, line: int) -> bool:
    """Below torch.no_grad(), or in a function that has it as decorator."""
    around = (item for item in own_nodes(scope) if isinstance(item, ast.With) and spans_body(item.body, line))
    modes = [part.context_expr for item in around for part in item.items]
    modes += scope.decorator_list if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    return any(_NO_GRAPH.search(ast.unparse(item)) for item in modes)


def sets_no_graph(node: ast.AST) -> bool:
    """Whether it names torch.no_grad() or the like, such as a function or class of the program."""
    return _NO_GRAPH.search(ast.unparse(node)) is not None


def names_switch(node: ast.AST) -> bool:
    """Whether it names what switches gradients off, whatever that is given: `set_grad_enabled(training)`."""
    text = ast.unparse(node)
    return any(name in text for name in _SWITCHES)
