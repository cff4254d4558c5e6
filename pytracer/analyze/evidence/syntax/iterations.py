"""A `for` over an object that has __getitem__ and no __iter__: Python counts up until IndexError, whatever its length.

`for x in dataset` of a torch Dataset never ends where its __getitem__ takes any number.
"""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, parameters, scope_of, spans
from pytracer.analyze.evidence.syntax.unbounded import Reason, short_text

_GETS, _ITERATES = "__getitem__", "__iter__"


def counted_up(inner: ast.Module, line: int, outer: ast.Module, outer_line: int) -> tuple[ast.For, Reason] | None:
    """The loop whose head called __getitem__, where nothing in that can raise IndexError for too large a number.

    Args:
        inner: The module of the frame that ran.
        line: Its line, in __getitem__.
        outer: The module of its caller.
        outer_line: The caller's line, the head of the loop.
    """
    function = scope_of(inner, line)
    owner = class_around(inner, function)
    if not isinstance(function, ast.FunctionDef) or function.name != _GETS or owner is None:
        return None
    if any(isinstance(item, ast.FunctionDef) and item.name == _ITERATES for item in owner.body):
        return None
    loop = _loop_headed(outer, outer_line)
    names = parameters(function)
    if loop is None or len(names) < 2 or _may_refuse(function, names[1]):
        return None
    return loop, Reason(
        f"`{short_text(loop.iter)}` is a {owner.name} without __iter__, so Python calls its __getitem__ with 0, 1, 2 "
        f"and so on until IndexError, and __getitem__ (line {function.lineno}) takes any number; __len__ is not asked",
        f"Loop over `range(len({short_text(loop.iter)}))` or a DataLoader at line {loop.lineno}, or begin __getitem__ "
        f"with `if {names[1]} >= len(self): raise IndexError({names[1]})`.",
        sure=True,
    )


def _loop_headed(tree: ast.Module, line: int) -> ast.For | None:
    """The `for` whose head is on the line, over a name or attribute."""
    loops = [item for item in nodes_of(tree) if isinstance(item, ast.For) and spans(item.iter, line)]
    return loops[0] if len(loops) == 1 and isinstance(loops[0].iter, (ast.Name, ast.Attribute)) else None


def _may_refuse(function: ast.FunctionDef, index: str) -> bool:
    """Whether it raises, or passes the number on to what may: an element of that number, a function."""
    for item in nodes_of(function):
        if isinstance(item, (ast.Raise, ast.Assert)):
            return True
        if isinstance(item, ast.Subscript) and _is_plain(item.slice, index):
            return True
        given = passed_values(item) if isinstance(item, ast.Call) else []
        if any(isinstance(part, ast.Name) and part.id == index for part in given):
            return True
    return False


def _is_plain(node: ast.AST, index: str) -> bool:
    """Whether an index is used as it is, and not `i % n`."""
    wrapped = {id(part) for item in nodes_of(node) if _is_modulo(item) for part in nodes_of(item)}
    return any(isinstance(item, ast.Name) and item.id == index and id(item) not in wrapped for item in nodes_of(node))


def _is_modulo(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
