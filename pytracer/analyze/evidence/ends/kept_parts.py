"""What an expression keeps of the values in it: the variables themselves, views of them, and what is made of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.ends.keeping_lines import held_by
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SAME = frozenset(
    {"list", "tuple", "dict", "zip", "enumerate", "iter", "next", "reversed", "from_numpy", "as_tensor", "asarray"}
)
_OF_ITSELF = frozenset({"items", "values", "detach", "view", "reshape", "squeeze", "unsqueeze", "numpy", "contiguous"})


def holds_any(value: ast.expr | None, names: frozenset[str]) -> bool:
    """Whether a value has the memory of one of the variables: itself, a view, or something that keeps it."""
    if value is None:
        return False
    if variable(value) in names or any(name in names for name, _ in held_by(value)):
        return True
    if isinstance(value, COMPREHENSIONS):
        return _in_comprehension(value, names)
    return any(holds_any(item, names) for item in _kept_inside(value))


def _kept_inside(value: ast.expr) -> list[ast.expr]:
    """The parts of an expression that its result keeps."""
    if isinstance(value, (ast.Starred, ast.Await, ast.NamedExpr, ast.Yield, ast.Subscript)):
        return [value.value] if value.value is not None else []
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        return value.elts
    if isinstance(value, ast.Dict):
        return value.values
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if not isinstance(value, ast.Call):
        return []
    called = called_name(value) or ""
    owner = value.func.value if isinstance(value.func, ast.Attribute) else None
    if owner is not None and called in _OF_ITSELF:
        return [owner]
    makes = called in _SAME or (isinstance(value.func, ast.Name) and called[:1].isupper())
    return passed_values(value) if makes else []


def _in_comprehension(value: ast.expr, names: frozenset[str]) -> bool:
    held = set(names)
    for item in getattr(value, "generators", ()):
        if holds_any(item.iter, frozenset(held)):
            held |= bare_names(item.target)
    return holds_any(value.value if isinstance(value, ast.DictComp) else getattr(value, "elt", None), frozenset(held))


def gives_any(item: ast.AST, names: frozenset[str]) -> bool:
    """Whether a statement or `yield` gives it to who called the function."""
    return isinstance(item, (ast.Return, ast.Yield, ast.YieldFrom)) and holds_any(item.value, names)


def hands_on(value: ast.expr | None, call: ast.Call) -> bool:
    """Whether what a call gives is the value, or is kept inside of it."""
    if value is None or value is call:
        return value is call
    parts = [value]
    while parts:
        part = parts.pop()
        if part is call:
            return True
        parts += _kept_inside(part)
    return False


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Of an assignment or a loop."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.For, ast.AsyncFor)) else []


def head_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements inside."""
    for item in ast.iter_child_nodes(statement):
        if not isinstance(item, (ast.stmt, ast.ExceptHandler)):
            yield from nodes_of(item)
