"""By which names a program has the objects of a class: variables, attributes, parameters and what loops give."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer.analyze.evidence.ends.kept_parts import targets_of
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import elements, last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters

_Pair = tuple[str, ast.expr]
_ROUNDS = 3


class Objects:
    """Of the classes in the files of a program; of a name alone it is not known which object of it is meant."""

    def __init__(self, files: Mapping[str, ast.Module]) -> None:
        self._files = files
        self._pairs: list[_Pair] | None = None
        self._known: dict[str, frozenset[str]] = {}

    def of(self, name: str) -> frozenset[str]:
        """The last names of what an object of the class is in: `meter` of `self.meter = Meter()`."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def makers(self, name: str) -> frozenset[str]:
        """What is called to make the objects that a name has: `Meter` of `self.meter = Meter()`."""
        self.of(name)
        bound = [value for held, value in self._pairs or () if held == name]
        calls = (item for value in bound for item in nodes_of(value) if isinstance(item, ast.Call))
        return frozenset(made for item in calls if (made := called_name(item)) is not None and made[:1].isupper())

    def _found(self, name: str) -> frozenset[str]:
        if self._pairs is None:
            self._pairs = [*self._bound()]
        found = {held for held, value in self._pairs if _makes(value, name)}
        for _ in range(_ROUNDS):
            found |= {held for held, value in self._pairs if last_name(value) in found}
        return frozenset(found)

    def _bound(self) -> Iterator[_Pair]:
        """Each name with what is bound to it."""
        functions: dict[str, list[ast.FunctionDef]] = {}
        for tree in self._files.values():
            for item in nodes_of(tree):
                if isinstance(item, ast.FunctionDef):
                    functions.setdefault(item.name, []).append(item)
                elif isinstance(item, ast.ClassDef):
                    made = [part for part in item.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
                    functions.setdefault(item.name, []).extend(made)
        for tree in self._files.values():
            for item in nodes_of(tree):
                value: ast.expr | None = getattr(item, "iter", getattr(item, "value", None))
                if value is not None:
                    for target in targets_of(item):
                        parts, values = elements(target), elements(value)
                        each = values if len(parts) == len(values) > 1 else [value] * len(parts)
                        pairs = zip(parts, each, strict=True)
                        yield from ((held, one) for part, one in pairs if (held := last_name(part)) is not None)
                if isinstance(item, ast.Call) and passed_values(item):
                    for function in functions.get(called_name(item) or "", ()):
                        for parameter in parameters(function):
                            given = argument_of(item, function, parameter)
                            if given is not None:
                                yield parameter, given


def _makes(value: ast.expr, name: str) -> bool:
    """`Net()`, `Net().eval()`, `DDP(Net())`, `[Net()]`."""
    return any(isinstance(item, ast.Call) and called_name(item) == name for item in nodes_of(value))
