"""Which expression of a line was None, where Python's message says what was done with it, and on which side."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SIDES = Pattern(
    r"(?:unsupported operand type\(s\) for (?P<of>\S+?)(?: or pow\(\))?:"
    r"|'(?P<than>[<>=]+)' not supported between instances of) '(?P<left>[\w.]+)' and '(?P<right>[\w.]+)'"
)
_LENGTH = Pattern(r"object of type 'NoneType' has no len\(\)")
_NUMBER = Pattern(r"^(int|float)\(\) argument must be .*not 'NoneType'")
_UNPACKED = Pattern(r"cannot unpack non-iterable NoneType")
_OPERATORS: dict[str, type[ast.operator] | type[ast.cmpop]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow,
    "@": ast.MatMult, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE,
}  # fmt: skip


def none_by_message(at: FailingLine) -> ast.expr | None:
    """None where the message does not tell, or where several expressions of the line may be meant."""
    if not at.own or at.node is None:
        return None
    if _UNPACKED.search(at.message):
        statement = at.statement
        whole = isinstance(statement, ast.Assign) and at.node in (statement, *statement.targets, statement.value)
        return statement.value if isinstance(statement, ast.Assign) and whole else None
    if "'NoneType' object is not callable" in at.message and isinstance(at.node, ast.Call):
        return at.node.func
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)]
    number = _NUMBER.search(at.message)
    asked = "len" if _LENGTH.search(at.message) else number[1] if number is not None else None
    if asked is not None:
        given = [
            item.args[0] for item in calls if isinstance(item.func, ast.Name) and item.func.id == asked and item.args
        ]
        return given[0] if len(given) == 1 else None
    return _operand(at)


def _operand(at: FailingLine) -> ast.expr | None:
    found = _SIDES.search(at.message)
    sides = (found["left"], found["right"]) if found is not None else ()
    if found is None or sides.count("NoneType") != 1:
        return None
    kind = _OPERATORS.get(found["than"] or found["of"].removesuffix("="))
    node = at.node
    exact = _sides_of(node, kind) if node is not None else None
    pairs = [pair for item in nodes_of(node) if (pair := _sides_of(item, kind)) is not None] if node is not None else []
    pairs = [exact] if exact is not None else pairs
    return pairs[0][sides.index("NoneType")] if len(pairs) == 1 else None


def _sides_of(item: ast.AST, kind: type[ast.AST] | None) -> tuple[ast.expr, ast.expr] | None:
    """The operands of an operation of that kind."""
    if isinstance(item, ast.BinOp) and kind is not None and isinstance(item.op, kind):
        return item.left, item.right
    if isinstance(item, ast.AugAssign) and kind is not None and isinstance(item.op, kind):
        return item.target, item.value
    if isinstance(item, ast.Compare) and len(item.ops) == 1 and kind is not None and isinstance(item.ops[0], kind):
        return item.left, item.comparators[0]
    return None


def of_bias(node: ast.AST) -> str | None:
    """`m.bias`, in a loop over the layers of a model."""
    if not isinstance(node, ast.Attribute) or node.attr != "bias" or not isinstance(node.value, ast.Name):
        return None
    text = source(node)
    return f"`{text}` is None, as a layer has it that is made with bias=False: write `if {text} is not None` before it."
