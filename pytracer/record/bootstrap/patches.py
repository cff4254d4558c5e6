"""Replaced attributes of other people's classes and modules, and how they are put back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pytracer.record.bootstrap.dynamo import is_compiling, unseen, unseen_frame


class Patches:
    """A stack of replacements. Putting back skips what somebody else has replaced since."""

    def __init__(self) -> None:
        self._made: list[tuple[object, str, object, object]] = []

    def replace(self, owner: object, name: str, replacement: Callable[..., object]) -> None:
        """Sets `owner.name`, remembering what was there. torch.compile does not compile the replacement."""
        unseen_frame(replacement)
        self._made.append((owner, name, owner.__dict__.get(name, getattr(owner, name)), replacement))
        setattr(owner, name, replacement)

    def after(self, owner: object, name: str, note: Callable[[Any], Any]) -> None:
        """Lets `note(self)` follow each call of a method. Where torch.compile traces one, it is the method alone.

        What the wrapper refers to are plain functions: of a method of an object that is made in compiled code, dynamo
        looks at all that the function holds, and it does not know our objects.
        """
        original = getattr(owner, name)
        unseen(note)

        @functools.wraps(original)
        def and_note(thing: Any, *args: object, **kwargs: object) -> object:
            result = original(thing, *args, **kwargs)
            if not is_compiling():
                note(thing)
            return result

        self.replace(owner, name, and_note)

    def put_back(self) -> None:
        """Undoes everything, last first."""
        while self._made:
            owner, name, original, replacement = self._made.pop()
            if owner.__dict__.get(name) is replacement:
                setattr(owner, name, original)
