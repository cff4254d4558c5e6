"""Classes of a program that derive from a class of C++ (pybind11), and which of them have a function that C++ calls.

C++ finds the function in Python only as long as the Python object lives: C++ owns another half of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.evidence.slicing.callers import calls_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters, scope_of

Files = Mapping[str, ast.Module]
_NOT_NATIVE = frozenset(
    {"torch", "nn", "abc", "typing", "enum", "collections", "threading", "multiprocessing", "unittest", "numpy", "np"}
)


class OwnClass(msgspec.Struct, frozen=True):
    """A class of the program, with its file."""

    file: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """Of the class."""
        return self.node.name


class Overriders(msgspec.Struct, frozen=True):
    """`classes` derive from `base`, a class of C++ in the Python module `module`; each one that is made has `method`.

    `module`: the last part of its name, or of the variable that has it.
    """

    base: str
    module: str
    method: str
    classes: tuple[OwnClass, ...]

    @property
    def names(self) -> frozenset[str]:
        """Of the classes."""
        return frozenset(item.name for item in self.classes)

    @property
    def with_method(self) -> list[OwnClass]:
        """Those that define the function themselves."""
        return [item for item in self.classes if _has(item.node, self.method)]


def overriders(files: Files, base: str, method: str) -> Overriders | None:
    """Of the class `base` of C++; None where one that the program makes may lack the function, or C++'s own is made.

    Where no class has a base of that name, it is the only foreign one of the classes with that function: Python's name
    for it may be another.
    """
    own = [OwnClass(file, node) for file, tree in files.items() for node in nodes_of(tree) if _is_class(node)]  # type: ignore[arg-type]
    names = {item.name for item in own}
    origins = {id(item.node): [*_origins(files, item)] for item in own}
    found = {origin for item in own for origin in origins[id(item.node)] if _last(origin) == base} - names
    if not found:
        having = [item for item in own if _has(item.node, method)]
        found = {o for item in having for o in origins[id(item.node)] if _is_foreign(o) and _last(o) not in names}
    if len({_last(item) for item in found}) != 1:
        return None
    base, module = _last(next(iter(found))), _last(next(iter(found)).rpartition(".")[0])
    family = _below(own, origins, base)
    made = {called_name(node) for tree in files.values() for node in nodes_of(tree) if isinstance(node, ast.Call)}
    lacking = [item for item in family if not _inherits(item, family, origins, method)]
    derived = {_last(origin) for item in family for origin in origins[id(item.node)]}
    if base in made or any(item.name in made or item.name not in derived for item in lacking):
        return None
    return Overriders(base, module, method, tuple(family))


def _below(own: Sequence[OwnClass], origins: Mapping[int, Sequence[str]], base: str) -> list[OwnClass]:
    """Those that derive from it, also through each other."""
    names, found = {base}, list[OwnClass]()
    while more := [
        item for item in own if item not in found and names & {_last(origin) for origin in origins[id(item.node)]}
    ]:
        found += more
        names |= {item.name for item in more}
    return [item for item in own if item in found]


def _inherits(item: OwnClass, family: Sequence[OwnClass], origins: Mapping[int, Sequence[str]], method: str) -> bool:
    """Whether it or a class of the family above it has the function; names may go in a circle."""
    waiting, seen = [item], set[int]()
    while waiting:
        at = waiting.pop()
        if _has(at.node, method):
            return True
        seen.add(id(at.node))
        above = {_last(origin) for origin in origins[id(at.node)]} - {at.name}
        waiting += [other for other in family if other.name in above and id(other.node) not in seen]
    return False


def _has(owner: ast.ClassDef, method: str) -> bool:
    """Whether its body defines a function, or sets it."""
    for item in owner.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == method:
            return True
        if isinstance(item, ast.Assign) and any(last_name(target) == method for target in item.targets):
            return True
    return False


def _origins(files: Files, item: OwnClass) -> Iterator[str]:
    """What its bases are: `sim.Policy`, also by an import, a variable, or a parameter of the function around it."""
    for base in item.node.bases:
        yield from _origin(files, item.file, base, item.node.lineno)


def _origin(files: Files, file: str, node: ast.expr, line: int, depth: int = 3) -> Iterator[str]:
    tree = files[file]
    scope = scope_of(tree, line)
    name = variable(node)
    if name is not None and depth and isinstance(scope, ast.FunctionDef) and name in parameters(scope):
        for call in calls_of(files, file, scope):
            given = call.argument(scope, name)
            if given is not None:
                yield from _origin(files, call.file, given, call.call.lineno, depth - 1)
        return
    imported = imported_as(tree, node)
    if imported is not None or not isinstance(node, ast.Name):
        yield imported or ast.unparse(node)
        return
    bound = [
        item.value
        for around in (scope, tree)
        for item in ast.iter_child_nodes(around)
        if isinstance(item, ast.Assign) and any(variable(target) == node.id for target in item.targets)
    ]
    if depth and len(bound) == 1 and isinstance(bound[0], (ast.Name, ast.Attribute)):
        yield from _origin(files, file, bound[0], bound[0].lineno, depth - 1)
    else:
        yield node.id


def _is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef)


def _is_foreign(origin: str) -> bool:
    """Whether it may be a class of C++: of a module that is none of Python's or torch's own."""
    return "." in origin and not set(origin.split(".")[:-1]) & _NOT_NATIVE


def _last(origin: str) -> str:
    return origin.rpartition(".")[2]
