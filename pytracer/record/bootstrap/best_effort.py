"""Best-effort access to private attributes of torch: failures are counted and recorded once, never raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.core import Core

P = ParamSpec("P")
T = TypeVar("T")


class BestEffort:
    """Calls functions that may fail in another version of torch. One note per subject: they fail always or never."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    @unseen
    def __call__(self, box: Core, subject: str, act: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of `act`; None if it failed. `subject` begins the note, e.g. "DDP's buckets"."""
        try:
            return act(*args, **kwargs)
        except Exception as error:
            box.lib.pytracer_count_hook_error()
            if subject not in self._told:
                self._told.add(subject)
                box.note(NoteCode.WRAPPER, f"{subject} could not be noted: {type(error).__name__}: {error}", subject)
            return None
