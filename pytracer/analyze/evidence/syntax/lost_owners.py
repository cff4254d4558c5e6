"""Functions that return the address of memory which ends with them: of a tensor or an array of their own.

`t = t.contiguous()`, then `return ctypes.c_void_p(t.data_ptr())`: the caller has the address alone. A pointer of
`array.ctypes.data_as()` holds its array, and is none of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, statement_at

Named = ast.FunctionDef | ast.AsyncFunctionDef
_AT_ADDRESS = ("from_address", "_from_blob")
_SAME_MEMORY = frozenset({"untyped_storage", "storage", "detach", "numpy", "view"})


class LostOwner(msgspec.Struct, frozen=True):
    """`function` returns, by `returned`, the address of `owner`, which `made` made: a variable of its own, or not.

    `again`: how a caller takes the address that holds the owner, `c_void_p(held.data_ptr())`; None where more than an
    address is returned.
    """

    function: Named
    owner: str
    is_variable: bool
    made: ast.stmt
    returned: ast.Return
    again: str | None


def address_taken(node: ast.AST) -> tuple[ast.expr, str] | None:
    """`x` of `x.data_ptr()` and of `x.ctypes.data`, with how that is taken; of a view of it the tensor itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "data_ptr":
        owner, taken = node.func.value, "data_ptr()"
    elif isinstance(node, ast.Attribute) and node.attr == "data":
        inner = node.value
        if not isinstance(inner, ast.Attribute) or inner.attr != "ctypes":
            return None
        owner, taken = inner.value, "ctypes.data"
    else:
        return None
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and called_name(owner) in _SAME_MEMORY:
        owner = owner.func.value
    return owner, taken


def lost_owner(function: Named) -> LostOwner | None:
    """None where no `return`, or more than one, returns such an address."""
    found = [item for node in own_nodes(function) if (item := _lost(function, node)) is not None]
    return found[0] if len(found) == 1 else None


def _lost(function: Named, node: ast.AST) -> LostOwner | None:
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    value = _value(function, node.value)
    parts = list(_parts(value)) if value is not None else []
    behind = [part for item in parts for part in _mapped(function, item)]
    taken = [(part, *found) for part in (*parts, *behind) if (found := address_taken(part)) is not None]
    if value is None or len(taken) != 1:
        return None
    part, owner, how = taken[0]
    alone = not isinstance(value, (ast.Tuple, ast.List, ast.Dict)) and part not in behind
    again = ast.unparse(value).replace(ast.unparse(part), f"held.{how}") if alone else None
    if again is not None and _names_of_own(function, value, part):
        again = None  # a caller has not what else is in it
    if isinstance(owner, (ast.Call, ast.BinOp)):
        return LostOwner(function, ast.unparse(owner), False, node, node, again)
    if not isinstance(owner, ast.Name) or _is_returned(value, owner.id):
        return None
    above = [line for line, made in lines_that_bind(function, owner.id) if line <= node.lineno and _makes(made)]
    made = statement_at(function, max(above)) if above else None
    return LostOwner(function, owner.id, True, made, node, again) if made is not None else None


def _names_of_own(function: Named, value: ast.expr, part: ast.AST) -> bool:
    """Whether what is returned has variables of the function beside the address."""
    address = {id(item) for item in nodes_of(part)}
    names = {item.id for item in nodes_of(value) if isinstance(item, ast.Name) and id(item) not in address}
    return any(name in parameters(function) or lines_that_bind(function, name) for name in names)


def _value(function: Named, value: ast.expr) -> ast.expr | None:
    """Of `return pointer` what `pointer` was set to, if that is known; None where an attribute of it was set, too."""
    if not isinstance(value, ast.Name):
        return value
    bound = [made for _, made in lines_that_bind(function, value.id)]
    only = bound[0] if len(bound) == 1 else None
    return only if isinstance(only, ast.expr) and not _gets_attributes(function, value.id) else None


def _gets_attributes(function: Named, name: str) -> bool:
    """`pointer.owner = x`: it may hold the owner so."""
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == name
        for node in own_nodes(function)
    )


def _mapped(function: Named, node: ast.AST) -> Iterator[ast.AST]:
    """Of a variable that is an array at an address, as `(c_float * n).from_address(x.data_ptr())` makes, what made it.

    Whatever is made of such an array, by NumPy for one, keeps it, and no more than it does.
    """
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return
    made = _value(function, node)
    if isinstance(made, ast.Call) and called_name(made) in _AT_ADDRESS:
        yield from _parts(made)


def _parts(value: ast.expr) -> Iterator[ast.AST]:
    """Without what a lambda inside would take later."""
    yield value
    if not isinstance(value, ast.Lambda):
        yield from own_nodes(value)


def _is_returned(value: ast.expr, name: str) -> bool:
    """Whether the owner is returned, too: `return t, t.data_ptr()`."""
    parts = (
        value.elts if isinstance(value, (ast.Tuple, ast.List)) else value.values if isinstance(value, ast.Dict) else ()
    )
    return any(isinstance(item, ast.Name) and item.id == name for item in parts)


def _makes(value: ast.AST | None) -> bool:
    """Whether it may have made memory of its own."""
    return isinstance(value, (ast.Call, ast.BinOp, ast.UnaryOp, ast.IfExp))
