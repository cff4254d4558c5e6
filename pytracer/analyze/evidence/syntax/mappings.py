"""Loops over the keys of a dict."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import without_wrappers
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_OF_DICTS = ("items", "keys", "values")
_WRAPPERS = ("sorted", "list", "tuple", "enumerate", "reversed", "tqdm")


def looped_dict(loop: Loop) -> str | None:
    """`metrics` of `for name in sorted(metrics):`, whose body reads `metrics[name]`, and of `metrics.items()`."""
    if isinstance(loop, ast.While):
        return None
    over = without_wrappers(loop.iter, _WRAPPERS)
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in _OF_DICTS:
        return variable(over.func.value)
    name, key = variable(over), variable(loop.target)
    looks_up = any(
        isinstance(item, ast.Subscript) and variable(item.value) == name and variable(item.slice) == key
        for part in loop.body
        for item in nodes_of(part)
    )
    return name if name is not None and key is not None and looks_up else None
