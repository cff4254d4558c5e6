"""The constructor of an exception's class: what it takes, and what it leaves to be made again from.

An exception goes to another process as its class and its `args`, with which the class is called there: what its
__init__ gave super().__init__(), else what it was made with (CPython, BaseException.__reduce__).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes

_OWN_WAY = frozenset({"__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__new__"})
_MOST_BASES = 6


class ErrorConstructor(msgspec.Struct, frozen=True):
    """`owner`: the class that has it, perhaps a base of the exception's. `kept`: its only call of the base's."""

    file: str
    owner: str
    node: ast.FunctionDef
    kept: ast.Call | None

    @property
    def takes(self) -> list[str]:
        """The parameters that it must be given."""
        return [*self._positional[: len(self._positional) - len(self.node.args.defaults)], *self.by_name]

    @property
    def by_name(self) -> list[str]:
        """Those of them that `args` never has."""
        given = zip(self.node.args.kwonlyargs, self.node.args.kw_defaults, strict=True)
        return [item.arg for item, default in given if default is None]

    @property
    def passed(self) -> list[ast.expr] | None:
        """What the base is given, without `self`; None where that is not known, as of `*args`."""
        if self.kept is None or any(isinstance(item, ast.Starred) for item in self.kept.args):
            return None
        return self.kept.args if self._is_bound else self.kept.args[1:]

    def has_line(self, file: str | None, line: int | None) -> bool:
        """Whether a line lies in it."""
        end = self.node.end_lineno or self.node.lineno
        return file == self.file and line is not None and self.node.lineno <= line <= end

    @property
    def _is_bound(self) -> bool:
        """Whether it is `super().__init__`, to which `self` is not passed."""
        return self.kept is None or (
            isinstance(self.kept.func, ast.Attribute) and isinstance(self.kept.func.value, ast.Call)
        )

    @property
    def _positional(self) -> list[str]:
        return [item.arg for item in (*self.node.args.posonlyargs, *self.node.args.args)][1:]

    @property
    def given_all(self) -> str | None:
        """`super().__init__(path, field, value)`; None where some go by name alone."""
        if self.node.args.kwonlyargs or self.node.args.vararg is not None:
            return None
        function = ast.unparse(self.kept.func) if self.kept is not None else "super().__init__"
        return f"{function}({', '.join([*([] if self._is_bound else ['self']), *self._positional])})"


def is_error_class(files: Mapping[str, ast.Module], name: str) -> bool:
    """Whether the only class of that name is derived from an exception, as far as the names of its bases show."""
    for _ in range(_MOST_BASES):
        found = [item for tree in files.values() if (item := class_named(tree, name)) is not None]
        if len(found) != 1 or not found[0].bases:
            return False
        name = ast.unparse(found[0].bases[0]).rpartition(".")[2]
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return True
    return False


def error_constructor(files: Mapping[str, ast.Module], type_: str) -> ErrorConstructor | None:
    """Of `errors.DecodeError`, by the only class of that name; None where it has a way of its own to be made again."""
    name, seen = type_.rpartition(".")[2], set[str]()
    while name and name not in seen and len(seen) < _MOST_BASES:
        seen.add(name)
        found = [(file, item) for file, tree in files.items() if (item := class_named(tree, name)) is not None]
        if len(found) != 1 or any(getattr(item, "name", "") in _OWN_WAY for item in found[0][1].body):
            return None
        file, owner = found[0]
        own = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
        if own is not None:
            calls = [*_base_calls(own)]
            return ErrorConstructor(file, owner.name, own, calls[0] if len(calls) == 1 else None)
        name = ast.unparse(owner.bases[0]).rpartition(".")[2] if owner.bases else ""
    return None


def _base_calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """`super().__init__(...)`, `ValueError.__init__(self, ...)`."""
    for item in own_nodes(function):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "__init__":
            yield item
