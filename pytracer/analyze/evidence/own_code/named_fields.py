"""What an item of a named tuple is called: `a.indices` for `a[1]`, of `Csr = namedtuple("Csr", "indptr indices")`."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable


def field_of(back: Slice, node: ast.Subscript, spot: Spot) -> str | None:
    """None where the class of the object is not known, or is no named tuple."""
    index = node.slice.value if isinstance(node.slice, ast.Constant) else None
    made = back.made(node.value, spot, calls=True)
    name = called_name(made.node) if isinstance(made.node, ast.Call) else None
    fields = _fields(made.spot.tree, name) if name is not None else ()
    if type(index) is not int or not 0 <= index < len(fields):
        return None
    return f"{ast.unparse(node.value)}.{fields[index]}"


def _fields(tree: ast.Module, name: str) -> tuple[str, ...]:
    """Of the class of that name, by namedtuple() or as a class of NamedTuple."""
    for item in tree.body:
        if isinstance(item, ast.ClassDef) and item.name == name:
            named = any(variable(base) in ("NamedTuple", "typing.NamedTuple") for base in item.bases)
            lines = [part for part in item.body if isinstance(part, ast.AnnAssign)] if named else []
            return tuple(part.target.id for part in lines if isinstance(part.target, ast.Name))
        if isinstance(item, ast.Assign) and [variable(part) for part in item.targets] == [name]:
            value = item.value
            is_named = isinstance(value, ast.Call) and called_name(value) == "namedtuple" and len(value.args) > 1
            return _words(value.args[1]) if is_named and isinstance(value, ast.Call) else ()
    return ()


def _words(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return tuple(node.value.replace(",", " ").split())
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    return tuple(item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str))
