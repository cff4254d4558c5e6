"""The lines that bind, set or fill a variable.

Syntax alone: a name means the variable of the innermost function around it, or the module's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, is_parameter, own_nodes

_FILLS = frozenset({"append", "extend", "add", "update", "insert", "setdefault", "appendleft", "put"})
_REGISTERS = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})


def binding(tree: ast.Module, scope: Scope, name: str, line: int) -> tuple[int, str | None] | None:
    """The last line above `line` that binds it, and in words where else it is filled or set.

    Of the module where the function binds none; None for a parameter, and for what is imported or defined.
    """
    if name.startswith("self."):
        return _attribute(tree, scope, name)
    bound = lines_that_bind(scope, name)
    if not bound and not is_parameter(scope, name):
        if any(isinstance(item, ast.Global) and name in item.names for item in ast.walk(tree)):
            return None  # a function may have set it
        inside, scope, bound = scope, tree, lines_that_bind(tree, name)
        if inside is not tree and len(bound) > 1:
            return None  # which of them the function met is not known
    if not bound:
        return None
    above = [item for item in bound if item[0] < line]
    if not above and scope is not tree and not _comes_again(scope, bound, line):
        return None  # a parameter, which only lines behind it change
    at, value = max(above or bound, key=lambda item: item[0])
    if isinstance(value, (ast.Import, ast.ImportFrom)):
        return None
    filled = _first_fill(scope, name) if is_empty_container(value) else None
    return at, _filled(filled if filled != line else None)


def _comes_again(scope: Scope, bound: list[tuple[int, ast.AST | None]], line: int) -> bool:
    """Whether a loop around a line has all that binds behind it."""
    loops = [item for item in own_nodes(scope) if isinstance(item, (ast.For, ast.AsyncFor, ast.While))]
    return any(
        item.lineno < line <= (item.end_lineno or 0) and all(at <= (item.end_lineno or 0) for at, _ in bound)
        for item in loops
    )


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


def _attribute(tree: ast.Module, scope: Scope, name: str) -> tuple[int, str | None] | None:
    """The line in __init__ that sets `self.x`, and the first elsewhere; else the only line that does."""
    owner = class_around(tree, scope)
    if owner is None:
        return None
    at_first: list[int] = []
    later: list[int] = []
    for method in owner.body:
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            (at_first if method.name == "__init__" else later).extend(_lines_that_set(method, name))
    if at_first:
        also = f"is set at line {later[0]}" if later else _filled(_first_fill_of_class(owner, name))
        return at_first[-1], also
    return (later[0], None) if len(later) == 1 else None


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
    for node in ast.walk(method):
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
        for node in ast.walk(method):
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
