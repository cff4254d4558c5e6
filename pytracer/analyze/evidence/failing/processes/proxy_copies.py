"""A key that is stored in an item of a Manager's dict or list: the proxy gives a copy, and the store is lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import is_loop_variable
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, scope_of

_PROXIES = ("dict", "list")
_MANAGERS = ("Manager", "SyncManager")
_PARSERS = ("load", "loads", "safe_load", "full_load", "read_text", "parse", "vars")  # what they give is no Manager's
_HOPS = 4


class _Lost(msgspec.Struct, frozen=True):
    """`store`: what is assigned to, `results[name]["loss"]`. `made`: the call that makes the proxy."""

    store: ast.Subscript
    spot: Spot
    made: ast.Call
    at: Spot


def lost_in_copy(at: FailingLine) -> str | None:
    """What to write instead."""
    found, subject = _lost(at), lost_in_copy_subject(at)
    if found is None or subject is None:
        return None
    item = ast.unparse(found.store.value)
    return (
        f"{capital(subject)}. Put the item back: `item = {item}`, change it, and `{item} = item`; or make each item by "
        f"`{source(found.made.func)}()`, too."
    )


def lost_in_copy_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _lost(at)
    if found is None or not isinstance(found.store.value, ast.Subscript):
        return None
    line, made = at.place(found.spot, found.store.lineno), at.place(found.at, found.made.lineno)
    proxy = source(found.store.value.value)
    return (
        f"{line} stores {source(found.store.slice)} in a copy: `{proxy}` is a {called_name(found.made)} of a Manager "
        f"({made}), which gives a copy of each item"
    )


def _lost(at: FailingLine) -> _Lost | None:
    """The only line that stores that key; nothing where the items are a Manager's as well."""
    if at.kind != "KeyError" or not _asks_item(at):
        return None
    stores = [
        (item, Spot(file, tree, scope_of(tree, item.lineno), item.lineno))
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store)
    ]
    keyed = [
        (item, spot)
        for item, spot in stores
        if isinstance(item.slice, ast.Constant) and repr(item.slice.value) == at.message
    ]
    if len(keyed) != 1 or not isinstance(keyed[0][0].value, ast.Subscript):
        return None
    store, spot = keyed[0]
    proxy = _proxy(at, keyed[0][0].value.value, spot, _HOPS)
    if proxy is None or any(_is_nested(at, file, tree) for file, tree in at.files.items()):
        return None
    return _Lost(store, spot, *proxy)


def _asks_item(at: FailingLine) -> bool:
    """Whether the key is looked up in an item of something: `found[name]["loss"]`, or of a loop."""
    for item in nodes_of(at.node) if at.node is not None else ():
        if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant):
            if repr(item.slice.value) != at.message:
                continue
            name = item.value.id if isinstance(item.value, ast.Name) else ""
            made = at.made(item.value, calls=False)
            if any(called_name(part) in _PARSERS for part in _calls_behind(at, item.value)):
                return False
            of_item = made is not None and isinstance(made.node, ast.Subscript)
            return isinstance(item.value, ast.Subscript) or of_item or is_loop_variable(at.scope, name, at.line)
    return False


def _calls_behind(at: FailingLine, node: ast.expr) -> Iterator[ast.Call]:
    """In what `found["a"]` is an item of, as written and as made."""
    made = at.made(node, calls=True)
    base: ast.AST = made.node if made is not None else node
    while isinstance(base, ast.Subscript):
        base = base.value
    found = at.made(base, calls=True) if isinstance(base, ast.expr) else None
    for item in (base, found.node if found is not None else base):
        if isinstance(item, ast.Call):
            yield item


def _proxy(at: FailingLine, node: ast.expr, spot: Spot, left: int) -> tuple[ast.Call, Spot] | None:
    """`manager.dict()`, also where another process was given it as an argument."""
    made = at.slice.made(node, spot, calls=True)
    if isinstance(made.node, ast.Call):
        owner = made.node.func.value if isinstance(made.node.func, ast.Attribute) else None
        own = called_name(made.node) in _PROXIES and owner is not None and _is_manager(at, owner, made.spot)
        return (made.node, made.spot) if own else None
    function = made.spot.scope
    if not left or not isinstance(made.node, ast.Name) or not isinstance(function, ast.FunctionDef):
        return None
    call = only_call(at.files, function) if made.node.id in parameters(function) else None
    given = call.argument(function, made.node.id) if call is not None else None
    if call is None or given is None:
        return None
    place = Spot(call.file, call.tree, scope_of(call.tree, call.call.lineno), call.call.lineno)
    return _proxy(at, given, place, left - 1)


def _is_manager(at: FailingLine, node: ast.expr, spot: Spot) -> bool:
    made = at.slice.made(node, spot, calls=True).node
    if isinstance(made, ast.Call):
        return called_name(made) in _MANAGERS
    blocks = (item for part in own_nodes(spot.scope) if isinstance(part, ast.With) for item in part.items)
    return any(
        isinstance(item.context_expr, ast.Call)
        and called_name(item.context_expr) in _MANAGERS
        and item.optional_vars is not None
        and ast.unparse(item.optional_vars) == ast.unparse(node)
        for item in blocks
    )


def _is_nested(at: FailingLine, file: str, tree: ast.Module) -> bool:
    """Whether an item is made by a Manager, too: `results[name] = manager.dict()`, or a function may make it so."""
    return any(
        _is_proxy_call(value)
        or (
            isinstance(value, ast.Call)
            and _is_proxy_call(
                at.slice.made(value, Spot(file, tree, scope_of(tree, value.lineno), value.lineno), calls=True).node
            )
        )
        for value in _items(tree)
    )


def _items(tree: ast.Module) -> Iterator[ast.expr]:
    for item in nodes_of(tree):
        if isinstance(item, ast.Assign) and any(isinstance(to, ast.Subscript) for to in item.targets):
            yield item.value
        elif isinstance(item, ast.Call) and called_name(item) in (*_PROXIES, "update", "append"):
            yield from (part for given in item.args for part in nodes_of(given) if isinstance(part, ast.expr))


def _is_proxy_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PROXIES
