"""Lines of a program that freeze a layer, or put another one in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, scope_of, spans_body

_FROZEN = "requires_grad"
_ALL = ("parameters", "named_parameters")
_THROUGH = ("list", "tuple", "enumerate", "chain")


class LayerLine(msgspec.Struct, frozen=True):
    """`line`: that does it, with its text; `at`: the line that calls the function which does, or the same one."""

    line: int
    text: str
    at: int
    call: str | None = None


def lines_that_freeze_layer(tree: ast.Module, names: Sequence[str], layers: Sequence[str]) -> list[LayerLine]:
    """`p.requires_grad = False` in a loop over the layer's parameters, `layer.requires_grad_(False)`.

    Args:
        tree: A file of the program.
        names: Of parameters, as `backbone.0.weight`.
        layers: Attributes by which a line may name what has all of these.
    """
    found = []
    for line, target in _frozen(tree):
        scope = scope_of(tree, line.lineno)
        of, filters = _owner(scope, target, line.lineno)
        if of is None:
            continue
        text = ast.unparse(line)
        if _last(of) in layers or any(all(word in name for name in names) for word in filters):
            found.append(LayerLine(line.lineno, text, line.lineno))
        elif isinstance(of, ast.Name) and of.id in parameters(scope) and not filters:
            place = parameters(scope).index(of.id)
            calls = [item for item in _calls(tree, getattr(scope, "name", "")) if len(item.args) > place]
            found += [
                LayerLine(line.lineno, text, call.lineno, ast.unparse(call))
                for call in calls
                if _last(call.args[place]) in layers
            ]
    return found


def lines_that_replace_layer(tree: ast.Module, layers: Sequence[str]) -> list[LayerLine]:
    """`model.module.fc = nn.Linear(16, 10)`, outside of the class that has it."""
    return [
        LayerLine(item.lineno, ast.unparse(item), item.lineno)
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.value, ast.Call)
        if isinstance(target := item.targets[0], ast.Attribute) and target.attr in layers
        if not (isinstance(target.value, ast.Name) and target.value.id == "self")
    ]


def _frozen(tree: ast.Module) -> Iterator[tuple[ast.stmt | ast.Call, ast.expr]]:
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and called_name(item) == f"{_FROZEN}_" and isinstance(item.func, ast.Attribute):
            if item.args and _is_false(item.args[0]):
                yield item, item.func.value
        elif isinstance(item, ast.Assign) and _is_false(item.value):
            for target in item.targets:
                if isinstance(target, ast.Attribute) and target.attr == _FROZEN:
                    yield item, target.value


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _owner(scope: ast.AST, target: ast.expr, line: int) -> tuple[ast.expr | None, list[str]]:
    """What a parameter is of, by the loop that goes through them, and the words that an `if` finds in its name."""
    if not isinstance(target, ast.Name):
        return target, []
    for loop in own_nodes(scope):
        if not isinstance(loop, ast.For) or not spans_body(loop.body, line):
            continue
        if target.id not in {item.id for item in nodes_of(loop.target) if isinstance(item, ast.Name)}:
            continue
        tests = [item for item in own_nodes(loop) if isinstance(item, ast.If) and spans_body(item.body, line)]
        words = [
            part.value
            for test in tests
            for part in nodes_of(test.test)
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value
        ]
        over = loop.iter
        while isinstance(over, ast.Call) and called_name(over) in _THROUGH and over.args:
            over = over.args[0]
        if tests and not words:
            return None, []
        if isinstance(over, ast.Call) and called_name(over) in _ALL and isinstance(over.func, ast.Attribute):
            return over.func.value, words
        return None, []
    return target, []


def _last(node: ast.expr) -> str | None:
    """`backbone` of `model.module.backbone`, of `backbone`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _calls(tree: ast.Module, name: str) -> list[ast.Call]:
    return [item for item in nodes_of(tree) if isinstance(item, ast.Call) and name and called_name(item) == name]
