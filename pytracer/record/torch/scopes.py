"""Scopes: what a thread is doing while it calls collectives. FSDP2's are ranges (csrc/hooks/distributed/ranges.cpp)."""

from __future__ import annotations

from collections.abc import Callable

from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.dynamo import unseen, unseen_frame
from pytracer.record.core import Core

MOST = 4096  # names; a program that generates new ones forever is limited

_ids: dict[str, int] = {}
_box: Core | None = None


@unseen
def scope(box: Core, name: str) -> int:
    """The journal id of a scope, which is written once; 0 if there are too many."""
    global _box
    if _box is not box:  # ids belong to one recording
        _ids.clear()
        _box = box
    known = _ids.get(name)
    if known is None:
        if len(_ids) >= MOST:
            return 0
        known = _ids[name] = box.journal(Entry.SCOPE, name)
    return known


@unseen_frame
def within(box: Core, scope_id: int, act: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """Calls `act` in a scope, and returns or raises what it does."""
    before = box.lib.pytracer_scope(scope_id)
    try:
        return act(*args, **kwargs)
    finally:
        box.lib.pytracer_scope(before)
