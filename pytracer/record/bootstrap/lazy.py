"""Parts of the recording that are imported and installed when the program comes to what they watch.

Most processes make no DataLoader or process group, and would pay for the import of all that could be watched (1 ms).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.dynamo import is_compiling, unseen
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core


class Part:
    """One part: `install` is called once, inside the first call of one of its entrances or at the end of an import."""

    def __init__(self, box: Core, install: Callable[[], None]) -> None:
        self._box, self._install = box, install
        self._waits = True
        self._entrances = Patches()
        self._calls: list[_Entrance] = []

    def at_call(self, owner: object, *names: str) -> Part:
        """Waits for the first call of `owner.name`. Whatever this torch does not have is left out."""
        for name in names:
            original = getattr(owner, name, None)
            if original is not None:
                entrance = _Entrance(self, owner, name, original)
                self._calls.append(entrance)
                self._entrances.replace(owner, name, entrance.stand_in)
        return self

    def at_import(self, module: str) -> Part:
        """Waits until that module is imported."""
        when_imported(module, self.arrive)
        return self

    @unseen
    def arrive(self) -> None:
        """Installs it now. An error costs the part, never the program."""
        if not self._waits:
            return
        self._waits = False
        self._entrances.put_back()  # the part replaces the same functions
        # Somebody's function stays around what was found here, as if the part had been there from the start.
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
        """Takes the entrances back: the part will not be installed."""
        self._waits = False
        self._entrances.put_back()


class _Entrance:
    """A function whose first call is waited for. Whoever keeps the stand-in comes to the part's function through it."""

    def __init__(self, part: Part, owner: object, name: str, original: Any) -> None:
        self._owner, self._name, self.original, self.to = owner, name, original, original

        @unseen
        def function_by_now() -> Any:
            part.arrive()
            return self.to

        @functools.wraps(original)
        def stand_in(*args: object, **kwargs: object) -> object:
            return (original if is_compiling() else function_by_now())(*args, **kwargs)

        self.stand_in = stand_in

    def current(self) -> Any:
        return getattr(self._owner, self._name)

    def put(self, function: object) -> None:
        setattr(self._owner, self._name, function)
