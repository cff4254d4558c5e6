"""The functions of a program that may run in another thread or process than its main program, by its source alone.

Wherever that is not clear they count as such: whoever asks wants to know what the main program alone does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import parents_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_STARTED = ("Process", "Thread")  # whose run() is called elsewhere
_PLAIN = ("object", "Module", "ABC", "Protocol", "Generic", "Exception", "NamedTuple", *_STARTED)


def functions_apart(tree: ast.Module) -> frozenset[Function]:
    """What is handed to somebody by its name (`target=work`, `submit(work)`), run() of a thread, and what they call.

    A method of a class that a library drives (a Dataset) counts, and one that is called by its name alone where an
    object of its class may be. One of a class that these functions have nothing of does not.
    """
    program = _Program(tree)
    found = {item for item in program.functions if program.is_started(item)}
    words = {word for item in found for word in _words(item)} | program.in_lambdas
    more = True
    while more:
        new = [item for item in program.functions if item not in found and program.is_reached(item, words, found)]
        found |= {*new}
        words |= {word for item in new for word in _words(item)}
        more = bool(new)
    return frozenset(found)


class _Program:
    """Its functions, with the classes that they are methods of, and what has objects of these."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents = parents_of(tree)
        self.functions = [item for item in self._parents if isinstance(item, _FUNCTIONS)]
        self._classes = {item.name: item for item in self._parents if isinstance(item, ast.ClassDef)}
        lambdas = (item for item in self._parents if isinstance(item, ast.Lambda))
        self.in_lambdas = frozenset(word for item in lambdas for word in _words(item))
        self._handed = frozenset(self._handed_names())
        self._keepers: dict[str, frozenset[str] | None] = {}
        self._families: dict[str, set[str]] = {}
        self._bases = {
            name: {last_name(base) or "" for base in item.bases} & self._classes.keys()
            for name, item in self._classes.items()
        }
        self._bound = {value: target for item in self._parents for target, value in set_by(item) if value is not None}
        self._calls: dict[str | None, list[ast.Call]] = {}
        for item in self._parents:
            if isinstance(item, ast.Call):
                self._calls.setdefault(called_name(item), []).append(item)

    def is_started(self, function: Function) -> bool:
        """Whether somebody else calls it."""
        owner = self._owner(function)
        bases = [last_name(base) or "" for base in owner.bases] if owner is not None else []
        if function.name in self._handed or (function.name == "run" and any(item.endswith(_STARTED) for item in bases)):
            return True
        return any(item not in self._classes and not item.endswith(_PLAIN) for item in bases)

    def is_reached(self, function: Function, words: set[str], found: set[Function]) -> bool:
        """Whether functions that have these words, and are `found`, may call it."""
        owner = self._owner(function)
        if owner is None:
            return function.name in words
        made = function.name.startswith("__") and owner.name in words
        return made or (function.name in words and self._has_objects(owner, words, found))

    def _has_objects(self, owner: ast.ClassDef, words: set[str], found: set[Function]) -> bool:
        family = self._family(owner)
        if family & words or any((its := self._owner(item)) is not None and its.name in family for item in found):
            return True
        kept = [self._kept(name) for name in family]
        return any(names is None or names & words for names in kept)

    def _kept(self, owner: str) -> frozenset[str] | None:
        """The variables that hold objects of a class; None where one goes elsewhere."""
        if owner not in self._keepers:
            self._keepers[owner] = self._find_kept(owner)
        return self._keepers[owner]

    def _find_kept(self, owner: str) -> frozenset[str] | None:
        names: set[str] = set()
        for call in self._calls.get(owner, ()):
            around = self._parents[call]
            target = self._bound.get(call) or (around.optional_vars if isinstance(around, ast.withitem) else None)
            name = last_name(target) if target is not None else None
            if name is not None:
                names |= names_of_object(self._tree, name)
            elif not isinstance(around, (ast.Attribute, ast.Expr)):  # `Learner(games).fit()` keeps none
                return None
        return frozenset(names)

    def _family(self, owner: ast.ClassDef) -> set[str]:
        """The names of a class, of those that it is derived from, and of those that are derived from these."""
        if owner.name not in self._families:
            names, known = {owner.name}, 0
            while len(names) > known:
                known = len(names)
                for name, bases in self._bases.items():
                    if name in names or bases & names:
                        names |= {name, *bases}
            self._families[owner.name] = names
        return self._families[owner.name]

    def _owner(self, function: Function) -> ast.ClassDef | None:
        around = self._parents[function]
        return around if isinstance(around, ast.ClassDef) else None

    def _handed_names(self) -> Iterator[str]:
        """Names that are read as values, rather than called."""
        for item, around in self._parents.items():
            is_called = isinstance(around, ast.Call) and around.func is item
            if isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Load) and not is_called:
                yield last_name(item) or ""


def _words(function: ast.AST) -> Iterator[str]:
    """The names and attributes in it, its parameters among them."""
    for item in nodes_of(function):
        if isinstance(item, ast.Name):
            yield item.id
        elif isinstance(item, ast.Attribute):
            yield item.attr
        elif isinstance(item, ast.arg):
            yield item.arg
