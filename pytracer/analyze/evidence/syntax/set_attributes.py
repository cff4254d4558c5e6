"""The lines that set an attribute of any object: `ctx.idx = ...`, `setattr(layer, "num_heads", n)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_OF_SETATTR = 3  # arguments


class SetAttribute(msgspec.Struct, frozen=True):
    """`owner`: `ctx` of `ctx.idx = value`. `value`: None where the line unpacks one, or counts in place."""

    line: int
    owner: str
    value: ast.expr | None
    changes: ast.operator | None = None  # of `layer.num_heads -= 1`


def lines_that_set_attribute(tree: ast.AST, attribute: str) -> list[SetAttribute]:
    """In the order of their lines."""
    return sorted(_settings(tree, attribute), key=lambda item: item.line)


def _settings(tree: ast.AST, attribute: str) -> Iterator[SetAttribute]:
    for node in nodes_of(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            changes = node.op if isinstance(node, ast.AugAssign) else None
            for target in targets:
                for part in nodes_of(target):
                    if isinstance(part, ast.Attribute) and part.attr == attribute and isinstance(part.ctx, ast.Store):
                        value = node.value if part is target else None
                        yield SetAttribute(node.lineno, ast.unparse(part.value), value, changes)
        elif isinstance(node, ast.Call) and called_name(node) == "setattr" and len(node.args) == _OF_SETATTR:
            name = node.args[1]
            if isinstance(name, ast.Constant) and name.value == attribute:
                yield SetAttribute(node.lineno, ast.unparse(node.args[0]), node.args[2])
