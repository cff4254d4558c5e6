"""Callbacks at the end of `import torch`, or of another module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from pytracer.record.bootstrap.dynamo import unseen


def is_imported() -> bool:
    """Whether torch is usable: its import is complete."""
    module = sys.modules.get("torch")
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def when_torch_is_imported(act: Callable[[], None]) -> None:
    """Calls `act` once torch is usable. See `when_imported`."""
    when_imported("torch", act)


def when_imported(name: str, act: Callable[[], None]) -> None:
    """Calls `act` once a module is usable: now, or at the end of the current or a later import.

    A failed import calls nothing. `act` must not raise.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is None:
        sys.meta_path.insert(0, _Finder(name, act))
    elif spec is not None and getattr(spec, "_initializing", False):
        _watch(spec, act)
    else:
        act()


@unseen
def _watch(spec: ModuleSpec, act: Callable[[], None]) -> None:
    """importlib clears `_initializing` when exec_module has returned (_bootstrap._load_unlocked, 3.10 to 3.14)."""
    base = type(spec)

    class Watched(base):  # type: ignore[misc, valid-type]
        @property
        def _initializing(self) -> bool:
            return True

        @_initializing.setter
        def _initializing(self, value: bool) -> None:
            if value:
                return
            self.__class__ = base  # type: ignore[assignment, unused-ignore]
            self.__dict__["_initializing"] = False
            if sys.exc_info()[0] is None:
                act()

    spec.__dict__.pop("_initializing", None)
    spec.__class__ = Watched


class _Finder:
    """Finds a module on the path and wraps its import. Stays until the module was imported."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._then = name, act

    @unseen
    def _act(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()

    @unseen
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name != self._name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            _watch(spec, self._act)
        return spec
