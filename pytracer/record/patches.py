"""Replaced attributes of other people's classes and modules, and how they are put back."""

from __future__ import annotations

from typing import Any


class Patches:
    """A stack of replacements. Putting back skips what somebody else has replaced since."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Sets `owner.name`, remembering what was there."""
        self._made.append((owner, name, owner.__dict__.get(name, getattr(owner, name)), replacement))
        setattr(owner, name, replacement)

    def put_back(self) -> None:
        """Undoes everything, last first."""
        while self._made:
            owner, name, original, replacement = self._made.pop()
            if owner.__dict__.get(name) is replacement:
                setattr(owner, name, original)
