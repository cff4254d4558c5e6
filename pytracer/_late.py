"""Functions that are imported when they are first called.

The analyses are a thousand modules, of which one report needs a quarter: to import them all was nine tenths of the time
in which `pytracer inspect` starts (docs/measurements/cost.md). Below `late_functions` an import statement at the top
of one of these modules, `from pytracer.analyze.x import find_y`, binds a stand-in for each function, and the first call
of one imports its module. The statements stay what they are for type checkers, linters, tests and readers.

By the names of PEP 8: what a statement imports is functions where all its names are lower case. Classes and constants
are imported at once, with what the same statement imports. Mercurial starts in the same way (its `demandimport`).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def late_functions(package: str) -> Iterator[None]:
    """Modules of a package that are imported meanwhile import functions of that package when these are first called.

    For a process of our own: the stand-ins stay where they were bound. Other threads may import what they like.
    """
    usual, own = builtins.__import__, package + "."

    def importing(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        at_top = globals is not None and globals is locals and str(globals.get("__name__")).startswith(own)
        if at_top and name.startswith(own) and name not in sys.modules and all(map(str.islower, fromlist or "-")):
            return _Functions(name, globals)
        return usual(name, globals, locals, fromlist or (), level)

    builtins.__import__ = importing
    try:
        yield
    finally:
        builtins.__import__ = usual


class _Functions:
    """Stands for a module in the import statement of another one."""

    def __init__(self, module: str, importer: Any) -> None:
        self._module = module
        self._importer = importer

    def __getattr__(self, name: str) -> _Late:
        return _Late(self._module, name, self._importer)


class _Late:
    """Stands for a function; its importer has the function itself once it was called."""

    __slots__ = ("_function", "_importer", "_module", "_name")

    def __init__(self, module: str, name: str, importer: dict[str, Any]) -> None:
        self._module, self._name, self._importer = module, name, importer
        self._function: Any = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._function is None:
            self._function = getattr(import_module(self._module), self._name)
            if self._importer.get(self._name) is self:
                self._importer[self._name] = self._function
        return self._function(*args, **named)
