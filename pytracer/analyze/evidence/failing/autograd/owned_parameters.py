"""Which parameter of a module a statement changes in place."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.autograd.changed_outputs import changed_part
from pytracer.analyze.evidence.failing.autograd.first_values import first_values
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.cut_values import is_without_graph
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body

_ITERATED = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})


def is_only_without_graph(at: FailingLine, tree: ast.Module, item: ast.stmt | ast.expr) -> bool:
    """A parameter, changed without gradients, of a module that the program calls without gradients alone, or never."""
    scope, module = scope_of(tree, item.lineno), module_of(tree, item)
    if module is None or not is_without_graph(scope, item.lineno):
        return False
    name = module.rpartition(".")[2] if module.startswith("self.") else None
    calls = [
        (around, call)
        for around in at.trees.values()
        for call in nodes_of(around)
        if isinstance(call, ast.Call)
        if (text := ast.unparse(call.func).removesuffix(".forward")) == module
        or (name is not None and text.rpartition(".")[2] == name)
    ]
    known = bool(calls) or module.startswith("self.")
    return known and all(is_without_graph(scope_of(around, call.lineno), call.lineno) for around, call in calls)


def is_parameter(tree: ast.Module, item: ast.stmt | ast.expr) -> bool:
    """Whether it changes a parameter, and nothing that a forward computed."""
    return module_of(tree, item) is not None or own_parameter(tree, item) is not None


def own_parameter(tree: ast.Module, item: ast.stmt | ast.expr) -> str | None:
    """`self.head.weight` of a change of it, or `self.codes` that is made by `nn.Parameter(...)`."""
    target = _changed(item)
    while isinstance(target, ast.Subscript):
        target = target.value
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return None
    values = first_values(tree, target)
    made = [ast.unparse(value.func) for value in values if isinstance(value, ast.Call)]
    known = any(text.endswith("Parameter") for text in made) or (not values and _is_of_layer(tree, target))
    return ast.unparse(target) if known else None


def _is_of_layer(tree: ast.Module, target: ast.Name | ast.Attribute) -> bool:
    """`self.head.weight`, where nothing says that what has it is no layer: `batch.weight` may be anything."""
    if not isinstance(target, ast.Attribute) or target.attr not in ("weight", "bias"):
        return False
    values = first_values(tree, target.value)
    if not values:
        return not isinstance(target.value, ast.Name)
    return all(isinstance(value, ast.Call) and (called_name(value) or "")[:1].isupper() for value in values)


def module_of(tree: ast.Module, item: ast.stmt | ast.expr) -> str | None:
    """Of a change of what a loop takes from `net.parameters()`: `net`; also of `p.mul_(x).add_(y)`."""
    target = _changed(item)
    name = variable(target) if target is not None else None
    if name is None:
        return None
    loops = [
        loop
        for loop in loops_of(scope_of(tree, item.lineno))
        if isinstance(loop, ast.For) and spans_body(loop.body, item.lineno)
    ]
    return next((found for loop in loops[::-1] if (found := _iterated(loop, name)) is not None), None)


def _changed(item: ast.stmt | ast.expr) -> ast.expr | None:
    """The changed part, of `x.mul_(2).add_(1)` also `x`."""
    target = changed_part(item)
    while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
        target = target.func.value
    return target


def _iterated(loop: ast.For, name: str) -> str | None:
    """`target` of `for p, t in zip(net.parameters(), target.parameters())` and `t`."""
    places, listed = [loop.target], [loop.iter]
    if isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.Call) and called_name(loop.iter) == "zip":
        places, listed = loop.target.elts, loop.iter.args
    for place, value in zip(places, listed, strict=False):
        owner = value.func if isinstance(value, ast.Call) else None
        if holds(place, name) and isinstance(owner, ast.Attribute) and owner.attr in _ITERATED:
            return ast.unparse(owner.value)
    return None
