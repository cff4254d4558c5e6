"""Replaced attributes of foreign classes and modules, and their restoration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from pytracer.record.bootstrap.dynamo import is_compiling, unseen, unseen_frame

T = TypeVar("T")
_INHERITED = object()  # in place of an original that a base has


class Patches:
    """A stack of replacements. Restoring skips attributes that were replaced by others since."""

    def __init__(self) -> None:
        self._made: list[tuple[object, str, object, object]] = []

    def replace(
        self, owner: object, name: str, replacement: Callable[..., object] | classmethod[Any, Any, Any]
    ) -> None:
        """Sets `owner.name` and keeps the original. torch.compile does not compile the replacement.

        Raises:
            AttributeError: There is nothing to replace.
        """
        getattr(owner, name)
        unseen_frame(replacement.__func__ if isinstance(replacement, classmethod) else replacement)
        self._made.append((owner, name, owner.__dict__.get(name, _INHERITED), replacement))
        setattr(owner, name, replacement)

    def after(self, owner: object, name: str, note: Callable[[T], object]) -> None:
        """Calls `note(self)` after each call of a method. When torch.compile traces it, nothing else.

        The wrapper refers to plain functions only: for a method of an object created in compiled code, dynamo examines
        everything that the function refers to, and it does not support our objects.
        """
        original = getattr(owner, name)
        unseen(note)

        @functools.wraps(original)
        def and_note(thing: T, /, *args: object, **kwargs: object) -> object:
            result = original(thing, *args, **kwargs)
            if not is_compiling():
                note(thing)
            return result

        self.replace(owner, name, and_note)

    def put_back(self) -> None:
        """Undoes all replacements, last first."""
        while self._made:
            owner, name, original, replacement = self._made.pop()
            if owner.__dict__.get(name) is not replacement:
                continue
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
