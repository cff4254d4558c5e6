"""The lines that bind, set or fill a variable.

Syntax alone: a name means the variable of the innermost function around it, or the module's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, UNKNOWN, left_by, places_that_bind, reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, all_parameters, class_around, is_parameter, own_nodes

_FILLS = frozenset({"append", "extend", "add", "update", "insert", "setdefault", "appendleft", "put"})
OR = "or"  # begins the words of another line that may have bound it
_MOST_LINES = 2
_IN_PLACE = Pattern(r"\[|\w+ of \d+$")  # tensors and containers, by their recorded values
_REGISTERS = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})


def binding(
    tree: ast.Module, scope: Scope, name: str, line: int, value: str | None = None
) -> tuple[int, str | None] | None:
    """The line that bound it, and in words where else it is filled or set.

    Of the module where the function binds none; None for a parameter, for what is imported or defined, and where more
    than two lines may have bound it, or a function around this one.

    Args:
        tree: Its module.
        scope: The function around the line.
        name: The variable.
        line: That reads it.
        value: What it was there: a line that gives another number, or None, did not bind it.
    """
    if name.startswith("self."):
        return _attribute(tree, scope, name, value)
    places: set[int] | frozenset[int] | None = None
    if places_that_bind(scope, name) or is_parameter(scope, name):
        places = reaching(scope, name, line, None if value is None else _IN_PLACE.match(value) is not None)
    elif not is_of_outer(tree, scope, name):
        scope, places = tree, _of_module(tree, name)
    if places is None or UNKNOWN in places:
        return None
    bound = lines_that_bind(scope, name)
    values = {at: [item for place, item in bound if place == at] for at in places}
    parts = {at for at in places if len(values[at]) == 1 and not _gives_another(values[at][0], value)}
    parts |= {at for at in places if len(values[at]) != 1}
    empty = {at for at, _ in bound if at < line} if all(is_empty_container(item) for _, item in bound) else set()
    parts = parts & empty or parts  # `rows += [row]` fills it
    first = is_parameter(scope, name) and ENTRY in parts
    lines = sorted(parts - {ENTRY})
    if not lines or len(lines) + first > _MOST_LINES:
        return None
    at = lines[-1]
    if _is_defined(scope, name, at) or any(isinstance(item, (ast.Import, ast.ImportFrom)) for item in values[at]):
        return None
    if first:
        return at, "in the first round it is the caller's" if at >= line else f"{OR} the caller's"
    if len(lines) > 1:
        return at, f"{OR} line {lines[0]}"
    filled = _first_fill(scope, name) if values[at] and is_empty_container(values[at][0]) else None
    return at, _filled(filled if filled != line else None)


def _of_module(tree: ast.Module, name: str) -> set[int] | None:
    """None where a function may have set it; which of several a function met is not known."""
    if any(isinstance(item, ast.Global) and name in item.names for item in nodes_of(tree)):
        return None
    places = places_that_bind(tree, name)
    return {*places} if len(places) == 1 else None


def is_of_outer(tree: ast.Module, scope: Scope, name: str) -> bool:
    """Whether a name that a function does not bind means a variable of a function around it, or its `*args`."""
    if isinstance(scope, ast.Module):
        return False
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    around = [
        item for item in nodes_of(tree) if isinstance(item, kinds) and any(part is scope for part in nodes_of(item))
    ]
    return any(name in all_parameters(item) or bool(places_that_bind(item, name)) for item in around)


def _gives_another(node: ast.AST | None, value: str | None) -> bool:
    """Whether the source has a number or None there, and the recorded value is not that."""
    if value is None or not isinstance(node, ast.Constant):
        return False
    if node.value is None or value == "None":
        return (node.value is None) != (value == "None")
    return type(node.value) in (int, float, bool) and value != repr(node.value)


def _is_defined(scope: ast.AST, name: str, line: int) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(item, kinds) and item.name == name and item.lineno == line for item in own_nodes(scope))


def _filled(line: int | None) -> str | None:
    return f"is filled at line {line}" if line is not None else None


def lines_that_bind(scope: ast.AST, name: str) -> list[tuple[int, ast.AST | None]]:
    """Lines of a scope that bind a variable, each with the value; a loop has none."""
    found: list[tuple[int, ast.AST | None]] = []
    for node in own_nodes(scope):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if any((item.asname or item.name.split(".")[0]) == name for item in node.names):
                found.append((node.lineno, node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_binds(target, name) for target in targets):
                found.append((node.lineno, node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor)) and _binds(node.target, name):
            found.append((node.lineno, None))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None and _binds(node.optional_vars, name):
            found.append((node.optional_vars.lineno, node.context_expr))
    return found


def each_set(targets: Sequence[ast.expr], value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment sets, with its value; also of `a, b = c, d`."""
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=False)
        else:
            yield target, value


def set_by(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """What a node gives a new object, with the value of an assignment; `x += y` changes what is there."""
    if isinstance(node, ast.Assign):
        yield from each_set(node.targets, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.target, None
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, None


def _binds(target: ast.AST, name: str) -> bool:
    """`a, (b, *c) = ...` binds three; `a[0] = ...` and `a.b = ...` none."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds(item, name) for item in target.elts)
    if isinstance(target, ast.Starred):
        return _binds(target.value, name)
    return isinstance(target, ast.Name) and target.id == name


def is_empty_container(value: ast.AST | None) -> bool:
    """`[]`, `dict()`."""
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    names = ("list", "dict", "set", "deque", "defaultdict")
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in names and not value.args
    )


def _first_fill(scope: ast.AST, name: str) -> int | None:
    return min(lines_that_fill(scope, name), default=None)


def lines_that_fill(scope: ast.AST, name: str) -> list[int]:
    """`x.append(...)`, `x[key] = ...`, `x += ...`, in order."""
    lines = []
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
            if variable(node.func.value) == name:
                lines.append(node.lineno)
        elif isinstance(node, ast.Assign):
            held = [item.value for item in node.targets if isinstance(item, ast.Subscript)]
            if any(variable(item) == name for item in held):
                lines.append(node.lineno)
        elif isinstance(node, ast.AugAssign) and variable(node.target) == name:
            lines.append(node.lineno)
    return sorted(lines)


def _attribute(tree: ast.Module, scope: Scope, name: str, value: str | None) -> tuple[int, str | None] | None:
    """The line in __init__ that sets `self.x`, and the first elsewhere; else the only line that does."""
    owner = class_around(tree, scope)
    if owner is None:
        return None
    at_first: list[int] = []
    later: list[int] = []
    for method in owner.body:
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if method.name == "__init__":
                lines = {*_lines_that_set(method, name)}
                at_first += sorted(lines & left_by(method, name) or lines)
            else:
                later += _lines_that_set(method, name)
    if value is not None and _IN_PLACE.match(value) is None:
        later += [
            item.lineno for item in nodes_of(owner) if isinstance(item, ast.AugAssign) and variable(item.target) == name
        ]
    outside = set_from_outside(tree, owner, name.removeprefix("self."))
    if at_first:
        others = [*later, *outside, *at_first[:-1]]
        also = f"is set at line {others[0]}" if others else _filled(_first_fill_of_class(owner, name))
        return at_first[-1], also
    return (later[0], None) if len(later) == 1 and not outside else None


def set_from_outside(tree: ast.Module, owner: ast.ClassDef, attribute: str) -> list[int]:
    """Lines that set an attribute of an object of the class: `model.head = ...`, and `self.head = ...` below it."""
    own = {id(item) for item in nodes_of(owner)}
    derived = derived_of(tree, owner)
    below = {id(item) for part in derived for item in nodes_of(part)}
    found = [line for part in derived for line in places_that_bind(part, attribute)]
    for item in nodes_of(tree):
        if isinstance(item, ast.Attribute) and item.attr == attribute and isinstance(item.ctx, (ast.Store, ast.Del)):
            of_self = isinstance(item.value, ast.Name) and item.value.id == "self"
            if id(item) in below or not of_self:
                found.append(item.lineno)
        elif isinstance(item, ast.Attribute) and item.attr == "data" and isinstance(item.ctx, ast.Store):
            if isinstance(item.value, ast.Attribute) and item.value.attr == attribute:
                found.append(item.lineno)
        elif isinstance(item, ast.Call) and id(item) not in own and called_name(item) in ("setattr", *_REGISTERS):
            named = any(isinstance(part, ast.Constant) and part.value == attribute for part in item.args[:2])
            of_self = variable(item.args[0] if called_name(item) == "setattr" and item.args else item.func) is not None
            if named and (id(item) in below or not (of_self and ast.unparse(item).find("self") >= 0)):
                found.append(item.lineno)
    return sorted(found)


def derived_of(tree: ast.Module, owner: ast.ClassDef) -> list[ast.ClassDef]:
    """Classes of the module that are derived from it."""
    names, found = {owner.name}, list[ast.ClassDef]()
    for item in nodes_of(tree):
        if isinstance(item, ast.ClassDef) and any(
            isinstance(base, ast.Name) and base.id in names for base in item.bases
        ):
            names.add(item.name)
            found.append(item)
    return found


def registered(node: ast.AST) -> tuple[str, ast.expr] | None:
    """`self.mask` and its value, of `self.register_buffer("mask", value)` and `setattr(self, "mask", value)`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and variable(node.func) is not None and node.func.attr in _REGISTERS:
        given = node.args
    elif called_name(node) == "setattr" and node.args and variable(node.args[0]) == "self":
        given = node.args[1:]
    else:
        return None
    name = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return (f"self.{name}", given[1]) if isinstance(name, str) and len(given) > 1 else None


def _lines_that_set(method: ast.AST, name: str) -> Iterator[int]:
    for node in nodes_of(method):
        held = registered(node)
        if held is not None and held[0] == name and isinstance(node, ast.Call):
            yield node.lineno
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if any(variable(item) == name for target in targets for item in _flat(target)):
            yield node.lineno


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _flat(item)
    else:
        yield target


def _first_fill_of_class(owner: ast.ClassDef, name: str) -> int | None:
    lines = [line for method in owner.body if (line := _first_fill(method, name)) is not None]
    return min(lines, default=None)


def attribute_settings(owner: ast.ClassDef) -> dict[str, tuple[int, str]]:
    """Attributes that its methods set on `self`: the first line and its method, __init__ before others."""
    methods = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found: dict[str, tuple[int, str]] = {}
    for method in sorted(methods, key=lambda item: item.name != "__init__"):
        for node in nodes_of(method):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in (item for held in targets if isinstance(held, ast.expr) for item in _flat(held)):
                name = variable(target) or ""
                if name.startswith("self."):
                    found.setdefault(name.removeprefix("self."), (target.lineno, method.name))
    return found


def is_loop_variable(scope: Scope, name: str, line: int) -> bool:
    """Whether the last line above that binds it is a loop over items."""
    bound = [item for item in lines_that_bind(scope, name) if item[0] < line]
    return bool(bound) and max(bound, key=lambda item: item[0])[1] is None


def bound_value(scope: Scope, name: str, line: int) -> tuple[int, ast.AST | None] | None:
    """The last line above that binds a variable of the function, and the value; None as value in a loop or `with`."""
    if name.startswith("self."):
        return None
    bound = lines_that_bind(scope, name)
    above = [item for item in bound if item[0] < line]
    return max(above or bound, key=lambda item: item[0], default=None)
