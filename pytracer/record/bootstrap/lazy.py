"""Lazy installers: parts of the recording that are imported and installed at first use of what they record.

Most processes use no DataLoader or process group, and would pay for importing all parts (1 ms).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.dynamo import is_compiling, unseen
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core


class LazyInstaller:
    """One part: `install` runs once, in the first call of one of its entry points or at the end of an import."""

    def __init__(self, box: Core, install: Callable[[], None]) -> None:
        self._box, self._install = box, install
        self._waits = True
        self._entry_points = Patches()
        self._calls: list[_EntryPoint] = []

    def at_call(self, owner: object, *names: str) -> LazyInstaller:
        """Installs at the first call of `owner.name`. Entry points that this torch lacks are ignored."""
        for name in names:
            original = getattr(owner, name, None)
            if original is not None:
                entry_point = _EntryPoint(self, owner, name, original)
                self._calls.append(entry_point)
                self._entry_points.replace(owner, name, entry_point.stand_in)
        return self

    def at_import(self, module: str) -> LazyInstaller:
        """Installs when that module is imported."""
        when_imported(module, self.arrive)
        return self

    @unseen
    def arrive(self) -> None:
        """Installs now. An error costs the part, never the program."""
        if not self._waits:
            return
        self._waits = False
        self._entry_points.put_back()  # the part replaces the same functions
        # Another wrapper around the stand-in stays, as if the part had been installed from the start.
        around = [(call, call.current()) for call in self._calls if call.current() is not call.original]
        for call, _ in around:
            call.put(call.original)
        try:
            self._install()
            for call in self._calls:
                call.to = call.current()
        except Exception as error:
            self._box.lib.pytracer_count_hook_error()
            self._box.note(NoteCode.PART, f"a part of the recording is not installed: {type(error).__name__}: {error}")
        for call, function in around:
            call.put(function)

    def forget(self) -> None:
        """Removes the entry points: the part will not be installed."""
        self._waits = False
        self._entry_points.put_back()


class _EntryPoint:
    """A stand-in whose first call installs the part. Kept references to it call the part's function."""

    def __init__(self, part: LazyInstaller, owner: object, name: str, original: Callable[..., object]) -> None:
        self._owner, self._name, self.original = owner, name, original
        self.to: Callable[..., object] = original

        @unseen
        def function_by_now() -> Callable[..., object]:
            part.arrive()
            return self.to

        @functools.wraps(original)
        def stand_in(*args: object, **kwargs: object) -> object:
            return (original if is_compiling() else function_by_now())(*args, **kwargs)

        self.stand_in = stand_in

    def current(self) -> Callable[..., object]:
        function: Callable[..., object] = getattr(self._owner, self._name)
        return function

    def put(self, function: object) -> None:
        setattr(self._owner, self._name, function)
