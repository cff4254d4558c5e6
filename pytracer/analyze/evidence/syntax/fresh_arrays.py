"""Variables that a call made anew, with nothing in them yet: `np.zeros(n)`, `torch.empty_like(x)`."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import scope_of

_EMPTY = ("empty", "new_empty", "empty_strided")  # these hold whatever their memory held before
_SET = ("zeros", "ones", "full", "new_zeros", "new_ones", "new_full")
_LIKE = "_like"


def is_unset(tree: ast.Module, name: str, line: int) -> bool:
    """Whether the values of a variable of a line are what its memory held before."""
    return _maker(tree, name, line) in _EMPTY


def is_fresh(tree: ast.Module, name: str, line: int) -> bool:
    """Whether nothing but its size and order was chosen for a variable of a line."""
    return _maker(tree, name, line) in (*_EMPTY, *_SET)


def _maker(tree: ast.Module, name: str, line: int) -> str | None:
    bound = bound_value(scope_of(tree, line), name, line)
    value = bound[1] if bound is not None else None
    return (called_name(value) or "").removesuffix(_LIKE) if isinstance(value, ast.Call) else None
