"""What is empty or 0 at the failing line, and which line emptied it, filtered it, or should have filled it."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.exceptions.name_origins import EMPTY_MESSAGE
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.emptied import (
    emptied_attribute,
    emptied_by,
    is_empty,
    never_filled,
    only_binding,
)
from pytracer.analyze.evidence.failing.usage.missed_lines import missed, never_counted
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes

_TAKES = {"pop", "popleft", "popitem"}
_HANDLE = "Handle the empty case before this line, or find what should have been there."


def nothing_there(at: FailingLine) -> str | None:
    """An index, reduction, division or pop that met nothing."""
    if at.kind == "ZeroDivisionError":
        return _zero(at) if at.own else None
    if not EMPTY_MESSAGE.search(at.message) and at.kind != "IndexError":
        return None
    node = at.node
    if node is None:
        return None
    taken = _used_up(at)
    if taken is not None:
        return taken
    if "num_samples=0" in at.message:
        return _empty_dataset(at, node)
    if at.kind == "IndexError" and at.own and not EMPTY_MESSAGE.search(at.message):
        node = getattr(at.only(ast.Subscript), "value", None)
        if node is None:
            return None
    names = [name for name in names_in(node) if is_empty(at.value(name))]
    if len(names) != 1:
        return None
    why = emptied_by(at, at.scope, names[0], at.line)
    several = any(line < at.line for line, _ in lines_that_bind(at.scope, names[0]))
    several = several and only_binding(at, at.scope, names[0], at.line) is None
    made = f": {why}" if why else at.came(names[0]) if not several else ""
    return f"`{names[0]}` is empty{made}. {_HANDLE}"


def _empty_dataset(at: FailingLine, node: ast.AST) -> str | None:
    """By the class of the program that the loader was given, and what its length counts."""
    for name in names_in(node):
        bound = only_binding(at, at.scope, name, at.line)
        call = bound[1] if bound is not None else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        owner = class_named(at.tree, call.func.id)
        counted = _counted_by_len(owner) if owner is not None else None
        if owner is None or counted is None:
            continue
        why = emptied_attribute(at, owner, counted)
        made = f" ({at.here(bound[0])}: `{source(call)}`)" if bound is not None else ""
        words = f"`{name}`{made} is empty, as its `{counted}` is"
        return f"{words}: {why}." if why else f"{words}. Look at what {owner.name}.__init__ fills it with."
    return None


def _counted_by_len(owner: ast.ClassDef) -> str | None:
    """`self.paths` of `return len(self.paths)`."""
    method = next((item for item in owner.body if getattr(item, "name", "") == "__len__"), None)
    for item in nodes_of(method) if method is not None else ():
        counted = _counted(item.value) if isinstance(item, ast.Return) and item.value is not None else None
        name = variable(counted) if counted is not None else None
        if name is not None and name.startswith("self."):
            return name
    return None


def _used_up(at: FailingLine) -> str | None:
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    takes = [item for item in calls if isinstance(item.func, ast.Attribute) and item.func.attr in _TAKES]
    if at.kind not in ("IndexError", "KeyError") or len(takes) != 1 or "empty" not in at.message:
        return None
    call = takes[0]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call
    name = variable(owner)
    if name is None:
        return None
    filled = at.came(name)
    return (
        f"Each `{source(call)}` takes one away, and `{name}`{filled} is used up or was never filled. Fill it again "
        "before, take by index or itertools.cycle() instead, or stop when it is empty."
    )


def _zero(at: FailingLine) -> str | None:
    """The divisor: a count that was never raised, or the length of something empty."""
    operations = (ast.Div, ast.FloorDiv, ast.Mod)
    node = at.node
    divisions = [
        item
        for item in (nodes_of(node) if node is not None else ())
        if isinstance(item, ast.BinOp) and isinstance(item.op, operations)
    ]
    divisor = divisions[0].right if divisions and (isinstance(node, ast.BinOp) or len(divisions) == 1) else None
    if divisor is None and isinstance(at.statement, ast.AugAssign) and isinstance(at.statement.op, operations):
        divisor = at.statement.value
    if divisor is None:
        return None
    counted = _counted(divisor)
    if counted is not None:
        name = variable(counted)
        why = emptied_by(at, at.scope, name, at.line) if name is not None else None
        made = f": {why}" if why else at.came(name or "")
        return f"`{source(counted)}` has no elements, so its length is 0{made}. {_HANDLE}"
    name = variable(divisor)
    if name is None or at.value(name) not in ("0", "0.0", None):
        return None
    bound = only_binding(at, at.scope, name, at.line)
    fills = [item for item in lines_that_fill(at.scope, name) if item != at.line]
    if bound is not None and isinstance(bound[1], ast.Call) and _counted(bound[1]) is not None and not fills:
        counted = _counted(bound[1])
        inner = variable(counted) if counted is not None else None
        why = emptied_by(at, at.scope, inner, bound[0]) if inner is not None else None
        return f"`{name}` is 0, the length of `{inner}` ({at.here(bound[0])}){f': {why}' if why else ''}. {_HANDLE}"
    why = never_counted(at, name)
    if why is not None:
        return f"`{name}` is 0 where line {at.line} divides by it: {why}. Handle the case of nothing counted there."
    if bound is None or len(fills) != 1:
        made = at.came(name) if not fills else ""
        return (
            f"`{name}`{made} is 0 where line {at.line} divides by it: correct it there, or handle 0 here."
            if made
            else None
        )
    spot = at.slice.spot(0)
    skipped = missed(at, spot, fills[0]) if spot is not None else None
    added = _added_nothing(at, fills[0]) or (skipped.words if skipped is not None else None)
    if skipped is not None and skipped.advice is not None and added == skipped.words:
        return f"`{name}` is still 0: {added}. {skipped.advice}"
    why = added or never_filled(at, at.scope, name, bound[0], fills[0], "raises")
    return f"`{name}` is still 0: {why}. Handle the empty case (return before, or `max({name}, 1)`)."


def _counted(node: ast.AST) -> ast.AST | None:
    """`x` of `len(x)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        return node.args[0]
    return None


def _added_nothing(at: FailingLine, fill: int) -> str | None:
    """The line that counts ran, with something empty."""
    node = next((item for item in own_nodes(at.scope) if isinstance(item, ast.AugAssign) and item.lineno == fill), None)
    names = [name for name in names_in(node.value) if is_empty(at.value(name))] if node is not None else []
    if not names:
        return None
    why = emptied_by(at, at.scope, names[0], fill)
    return f"{at.here(fill)} adds nothing, as `{names[0]}` is empty{f': {why}' if why else ''}"
