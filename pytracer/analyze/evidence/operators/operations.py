"""Which `*` or `+` of a line an operator is, by an operand that it was given, and which variables are its operands.

`x * torch.rsqrt(x.pow(2).mean()) * self.weight` multiplies twice. Where the operator was given `self.weight`, its other
operand is a result without a name, and no `x`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.lifetime.variables import python_frames
from pytracer.analyze.evidence.operators.operator import Operator
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_OPERATIONS: dict[str, type[ast.operator]] = {
    "mul": ast.Mult, "add": ast.Add, "sub": ast.Sub, "div": ast.Div, "pow": ast.Pow, "matmul": ast.MatMult,
    "remainder": ast.Mod,
}  # fmt: skip
_VIEWS = frozenset({
    "view", "reshape", "unsqueeze", "squeeze", "t", "transpose", "permute", "expand", "expand_as", "contiguous",
    "detach", "flatten", "narrow", "select", "to", "float", "double", "half", "type_as",
})  # fmt: skip


def operands_of_operation(view: ProcessView, operator: Operator) -> set[str] | None:
    """The variables that the operator was given; None where which operation of the line it is is not known."""
    own = next(iter(python_frames(view)), None)
    if own is None or is_library_file(own.file):
        return None
    tree = syntax_tree(view.process.snapshot, python_frame(own))
    statement = statement_at(tree, own.line) if tree is not None and own.line else None
    name = operator.name.rpartition("::")[2].partition("_")[0]
    kind = _OPERATIONS.get(name)
    if statement is None or kind is None or isinstance(statement, (ast.For, ast.While, ast.If, ast.With)):
        return None
    nodes = [*nodes_of(statement)]
    if any(isinstance(item, ast.Call) and (called_name(item) or "").rstrip("_") == name for item in nodes):
        return None  # that may be the operator as well
    operations = [set(_operands(item)) for item in nodes if isinstance(item, ast.BinOp) and isinstance(item.op, kind)]
    if len(operations) == 1:
        return operations[0]
    passed = {item.name for item in operator.tensors if item.passed and item.name is not None}
    fitting = [item for item in operations if passed and passed <= item]
    return fitting[0] if len(fitting) == 1 else None


def _operands(operation: ast.BinOp) -> Iterator[str]:
    for side in (operation.left, operation.right):
        inner: ast.expr = side
        while True:
            if isinstance(inner, (ast.Name, ast.Attribute)):
                yield ast.unparse(inner)
            if isinstance(inner, (ast.Subscript, ast.Attribute)):
                inner = inner.value
            elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _VIEWS:
                inner = inner.func.value
            else:
                break
