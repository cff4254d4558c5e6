"""Functions of a native library that the program keeps in variables: `nms = CDLL(path).nms`, `self.nms = load_nms()`.

A call of such a variable names no library. Only a variable of the same function, of the module, or of the same class
is taken for it, and only where one line binds it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, is_parameter, own_nodes, scope_of

Loads = Callable[[ast.Call], bool]  # whether a call loads a library of the program's own
_FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


class LoadedFunction(msgspec.Struct, frozen=True):
    """`name` is the variable, in the function, module or class `owner`; `function`: what C calls it."""

    name: str
    function: str
    owner: int


def functions_returned(tree: ast.Module, loads: Loads) -> dict[str, str]:
    """`load_nms` of `def load_nms(): ... return CDLL(path).nms`, each with the C function that its returns all are."""
    found: dict[str, str] = {}
    for node in nodes_of(tree):
        if not isinstance(node, _FunctionDef):
            continue
        libraries, kept = _libraries(node, loads), dict(_kept(node, loads))
        returned = [item.value for item in own_nodes(node) if isinstance(item, ast.Return)]
        names = {
            kept.get(value.id) if isinstance(value, ast.Name) else _function(value, libraries, loads)
            for value in returned
        }
        name = names.pop() if len(names) == 1 else None
        if name is not None:
            found[node.name] = name
    return found


def loaded_functions(
    tree: ast.Module, loads: Loads, modules: Collection[str], returned: Mapping[str, str]
) -> list[LoadedFunction]:
    """Of a file.

    Args:
        tree: The file.
        loads: See `Loads`.
        modules: Variables that hold libraries of the program's own.
        returned: Functions of the program that return one of these.
    """
    found = []
    for node in nodes_of(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        name = variable(node.targets[0])
        function = _function(node.value, modules, loads)
        if function is None and isinstance(node.value, ast.Call):
            function = returned.get(called_name(node.value) or "")
        owner = _owner(tree, name, node.lineno) if name is not None else tree
        if name is not None and function is not None and _is_bound_once(tree, owner, name):
            found.append(LoadedFunction(name, function, id(owner)))
    return found


def _is_bound_once(tree: ast.Module, owner: ast.AST, name: str) -> bool:
    """`nms = torchvision.ops.nms` below `nms = lib.nms` makes another function of it."""
    if "." in name:
        return sum(isinstance(item, ast.Attribute) and _sets(item, name) for item in nodes_of(owner)) == 1
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    again = any(isinstance(item, kinds) and item.name == name for item in own_nodes(owner))
    shared = any(isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names for item in nodes_of(tree))
    return len(lines_that_bind(owner, name)) == 1 and not again and not shared


def _sets(node: ast.Attribute, name: str) -> bool:
    return isinstance(node.ctx, ast.Store) and variable(node) == name


def called_function(tree: ast.Module, call: ast.Call, loaded: Collection[LoadedFunction]) -> str | None:
    """The C function that a call of a variable is of; None where the variable may hold anything else."""
    name = variable(call.func)
    own = [item for item in loaded if item.name == name]
    if name is None or not own:
        return None
    scope = scope_of(tree, call.lineno)
    here = _owner(tree, name, call.lineno)
    if not name.startswith("self.") and not isinstance(scope, ast.Module):
        inside = is_parameter(scope, name) or bool(lines_that_bind(scope, name))
        here = scope if inside else tree
    names = {item.function for item in own if item.owner == id(here)}
    return names.pop() if len(names) == 1 else None


def _owner(tree: ast.Module, name: str, line: int) -> ast.AST:
    scope = scope_of(tree, line)
    return (class_around(tree, scope) or scope) if name.startswith("self.") else scope


def _libraries(scope: Scope, loads: Loads) -> set[str]:
    """Variables of a function that hold a library that it loads."""
    return {
        name
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and loads(item.value)
        for target in item.targets
        if (name := variable(target)) is not None
    }


def _kept(scope: _FunctionDef, loads: Loads) -> Iterator[tuple[str, str]]:
    """Variables of a function that hold a function of such a library, and nothing else."""
    libraries = _libraries(scope, loads)
    for item in own_nodes(scope):
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
            name, function = item.targets[0].id, _function(item.value, libraries, loads)
            if function is not None and len(lines_that_bind(scope, name)) == 1:
                yield name, function


def _function(node: ast.AST | None, libraries: Collection[str], loads: Loads) -> str | None:
    """`nms` of `lib.nms`, and of `CDLL(path).nms`."""
    if not isinstance(node, ast.Attribute):
        return None
    if isinstance(node.value, ast.Call):
        return node.attr if loads(node.value) else None
    return node.attr if ast.unparse(node.value) in libraries else None
