"""A tensor that cannot take what is written into it: one that is expanded, of whole numbers, or a parameter."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes

_SHARED = Pattern(r"more than one element of the written-to tensor refers to a single\s+memory location")
_NO_CAST = Pattern(r"result type (\w+) can't be cast to the desired output type (\w+)")
_EXPANDS = ("expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "expand_dims")
_PASSES_ON = ("view", "unsqueeze", "squeeze", "transpose", "permute", "t", "movedim", "flatten", "reshape", "detach")
_WHOLE = Pattern(r"^(?:Long|Int|Short|Byte|Char|Bool)$")


def written_tensor(at: FailingLine) -> str | None:
    """By the line that made it."""
    if _SHARED.search(at.message):
        return _expanded(at)
    found = _NO_CAST.search(at.message)
    return _no_cast(at, found[1], found[2]) if found is not None else None


def _target(at: FailingLine) -> ast.expr | None:
    """`x` of `x += y`, `x[0] += y`, `x[0] = y` and `x.add_(y)`."""
    statement = at.statement
    target: ast.expr | None = None
    if isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        target = statement.targets[0]
    else:
        call = at.only(ast.Call)
        if call is not None and isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
            target = call.func.value
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _expanded(at: FailingLine) -> str | None:
    target = _target(at)
    name = variable(target) if target is not None else None
    last = _last_set(at.scope, name, at.line) if name is not None else None
    made = at.made(target, calls=False) if target is not None and last is None else None
    if name is None or (last is None and made is None):
        return None
    node: ast.AST = last.value if last is not None else made.node if made is not None else ast.Pass()
    where = at.here(last.lineno) if last is not None else at.place(made.spot, made.line) if made is not None else ""
    text = source(last if last is not None else node)
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PASSES_ON:
        node = node.func.value
    how = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if how not in _EXPANDS:
        return None
    return (
        f"`{name}` ({where}: `{text}`) comes of {how}(), so that its rows are one memory, and line {at.line} writes "
        f"into it: end {where} with `.clone()`, or use repeat(), or make a new tensor at line {at.line} in place of "
        "changing it."
    )


def _no_cast(at: FailingLine, result: str, held: str) -> str | None:
    target = _target(at)
    name = variable(target) if target is not None else None
    if name is None or not _WHOLE.match(held) or not isinstance(at.statement, (ast.AugAssign, ast.Expr)):
        return None
    shape = at.shape(name)
    return (
        f"`{name}`{at.came(name)} holds {shape.dtype if shape is not None else held.lower()}, and what line {at.line} "
        f"writes into it is {result.lower()}: begin with a tensor of floats (`0.0`, dtype=torch.float32), or write "
        f"`{name} = {_again(at, name)}`, which makes a new one."
    )


def _again(at: FailingLine, name: str) -> str:
    """`x / ...`, `x.clamp(...)`."""
    signs = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
    if isinstance(at.statement, ast.AugAssign):
        return f"{name} {signs.get(type(at.statement.op), '+')} ..."
    call = at.only(ast.Call)
    method = call.func.attr.removesuffix("_") if call is not None and isinstance(call.func, ast.Attribute) else "add"
    return f"{name}.{method}(...)"


def _last_set(scope: Scope, name: str, line: int) -> ast.Assign | None:
    """The statement above that set it, of one name."""
    sets = [
        item
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign) and item.lineno < line and [variable(part) for part in item.targets] == [name]
    ]
    return max(sets, key=lambda item: item.lineno, default=None)
