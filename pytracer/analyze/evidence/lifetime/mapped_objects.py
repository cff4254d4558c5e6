"""Objects that have an array of a mapped file and the path of that file, by each line of the program that makes one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from pytracer.analyze.evidence.slicing.given_memory import Search
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import attribute_settings, lines_that_bind, set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, classes_below, parameters, scope_of

_COPIES = ("replace", "_replace")
_SETS = ("setattr", "__setattr__")
_SAME = frozenset({"str", "Path", "fspath"})
_Maps = Sequence[tuple[str, ast.Call]]


class MappedObjects:
    """`maps`: the lines that may have mapped the file, by their files."""

    def __init__(self, files: Mapping[str, ast.Module], maps: _Maps) -> None:
        self._files, self.maps = files, maps

    def of(self, owner: ast.ClassDef, array: str, path: str) -> tuple[str, ast.Call] | None:
        """The only line that maps `self.<array>`; None where `self.<path>` may be another file's, or be set anew."""
        arrays, paths = [*self._sets(owner, array)], [*self._sets(owner, path)]
        fields = _fields(owner)
        if self._may_part(array, path):
            return None
        if not arrays and not paths and {array, path} <= {*fields}:
            found = [self._constructed(owner, fields, array, path)]
        elif None in arrays or None in paths or len(paths) != 1:
            return None
        else:
            found = [self._of_pair(owner, item, paths[0]) for item in arrays if item and not is_none(item[1])]
        known = {id(item[1]): item for part in found for item in part or ()}
        return next(iter(known.values())) if None not in found and len(known) == 1 else None

    def owner_of(self, array: str, path: str) -> ast.ClassDef | None:
        """The only class of the program whose objects have both."""
        found = [
            item
            for tree in self._files.values()
            for item in nodes_of(tree)
            if isinstance(item, ast.ClassDef) and {array, path} <= {*_fields(item), *attribute_settings(item)}
        ]
        return found[0] if len(found) == 1 else None

    def setters(self, owner: ast.ClassDef, array: str) -> set[str]:
        """The methods that set the array anew."""
        sets = (item for item in self._sets(owner, array) if item is not None)
        return {getattr(spot.scope, "name", "") for spot, _ in sets} - {"__init__"}

    def _sets(self, owner: ast.ClassDef, name: str) -> Iterator[tuple[Spot, ast.expr] | None]:
        """What the class sets an attribute to; None where another object's line may, or what it gets is not seen."""
        for file, tree in self._files.items():
            for node in nodes_of(tree):
                for target, value in set_by(node):
                    if not isinstance(target, ast.Attribute) or target.attr != name:
                        continue
                    scope = scope_of(tree, target.lineno)
                    own, around = variable(target) is not None, class_around(tree, scope)
                    if own and around is not owner and around not in classes_below(self._files.values(), owner):
                        continue
                    known = own and around is owner and value is not None
                    yield (Spot(file, tree, scope, target.lineno), value) if known and value is not None else None

    def _may_part(self, *names: str) -> bool:
        """Whether a call gives an object one of both alone: `replace(scan, path=out)`, `setattr(scan, name, x)`."""
        for call in (item for tree in self._files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)):
            if called_name(call) in _COPIES and any(item.arg is None or item.arg in names for item in call.keywords):
                return True
            name = call.args[1] if called_name(call) in _SETS and len(call.args) > 1 else None
            if name is not None and (not isinstance(name, ast.Constant) or name.value in names):
                return True
        return False

    def _of_pair(
        self, owner: ast.ClassDef, array: tuple[Spot, ast.expr], path: tuple[Spot, ast.expr] | None
    ) -> list[tuple[str, ast.Call]] | None:
        """The lines that map what an attribute is set to; None where one may map another file."""
        spot, value = array
        if path is None or getattr(path[0].scope, "name", None) != "__init__":
            return None
        mapper = self._mapper(spot.file, value)
        if mapper is not None:
            own = ast.unparse(_plain(mapper[1].args[0])) if mapper[1].args else ""
            attribute = f"self.{_attribute(path, owner)}"
            of_one = spot.scope is path[0].scope and _is_same(mapper[1], path[1], path[0])
            return [mapper] if own == attribute or of_one else None
        if isinstance(value, ast.Name) and value.id in parameters(spot.scope) and spot.scope is path[0].scope:
            given = _plain(path[1])
            names = parameters(spot.scope)[1:]
            return self._constructed(owner, names, value.id, given.id) if isinstance(given, ast.Name) else None
        return [] if Search(self._files).is_fresh(value, spot) else None

    def _constructed(
        self, owner: ast.ClassDef, names: Sequence[str], array: str, path: str
    ) -> list[tuple[str, ast.Call]] | None:
        """By each line that makes such an object: the array it passes is mapped by the path that it passes."""
        below = classes_below(self._files.values(), owner)
        if any(getattr(part, "name", None) == "__init__" for item in below for part in item.body):
            return None
        made, found = {owner.name, *(item.name for item in below)}, []
        for file, tree in self._files.items():
            for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
                spot = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
                is_own = called_name(call) == "cls" and class_around(tree, spot.scope) is owner
                if called_name(call) not in made and not is_own:
                    continue
                data, name = _passed(call, names, array), _passed(call, names, path)
                if data is None or name is None:
                    return None
                bound = lines_that_bind(spot.scope, data.id) if isinstance(data, ast.Name) else []
                for value in [item for _, item in bound] or [data]:
                    mapper = self._mapper(file, value)
                    if mapper is not None and _is_same(mapper[1], name, spot):
                        found.append(mapper)
                    elif mapper is not None or not Search(self._files).is_fresh(value, spot):
                        return None
        return found

    def _mapper(self, file: str | None, value: ast.AST | None) -> tuple[str, ast.Call] | None:
        return next((item for item in self.maps if item[0] == file and item[1] is value), None)


def _is_same(mapper: ast.Call, path: ast.expr, spot: Spot) -> bool:
    """Whether both are one expression, whose variables nothing binds anew in between."""
    own = _plain(mapper.args[0]) if mapper.args else None
    if own is None or ast.unparse(own) != ast.unparse(_plain(path)):
        return False
    first, last = sorted((mapper.lineno, spot.line))
    return not any(first <= line <= last for name in bare_names(own) for line, _ in lines_that_bind(spot.scope, name))


def _plain(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and called_name(node) in _SAME and len(node.args) == 1:
        node = node.args[0]
    return node


def _passed(call: ast.Call, names: Sequence[str], name: str) -> ast.expr | None:
    if any(isinstance(item, ast.Starred) for item in call.args) or name not in names:
        return None
    return argument_at(call, names.index(name), name)


def _attribute(path: tuple[Spot, ast.expr], owner: ast.ClassDef) -> str:
    """The name that the path's line sets."""
    for node in nodes_of(owner):
        for target, value in set_by(node):
            if value is path[1] and isinstance(target, ast.Attribute):
                return target.attr
    return ""


def _fields(owner: ast.ClassDef) -> list[str]:
    """Of a dataclass, in the order of its constructor."""
    if not any("dataclass" in ast.unparse(item) for item in owner.decorator_list):
        return []
    return [
        item.target.id for item in owner.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]
