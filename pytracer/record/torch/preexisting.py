"""Storages allocated before recording started: found once, after the hooks have been installed.

Those known to Python are found through the garbage collector: parameters, buffers, optimizer state and all other
tensors that Python ever saw. Tensors held only by C++, and objects behind `gc.freeze()`, are found later, as arguments
of autograd nodes and collectives, or never.
"""

from __future__ import annotations

import time

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.core import Core
from pytracer.record.torch.library import TorchLibrary

BUDGET_NS = 200_000_000


def follow(box: Core, hooks: TorchLibrary, objects: list[object]) -> None:
    """Adds those among `objects`, the garbage collector's, to the tables; a note counts what was left out."""
    begin = time.monotonic_ns()
    looked_at, followed, not_followed = hooks.follow_preexisting(objects, BUDGET_NS)
    total = len(objects)
    if not not_followed and looked_at == total:
        return
    words = f"{followed} storages are older than the recording, found among {looked_at} objects"
    if not_followed:
        words += f"; {not_followed} more are not followed: nobody would see their end"
    if looked_at < total:
        words += f"; the search was given up after {(time.monotonic_ns() - begin) // 1_000_000} ms of {total} objects"
    box.note(NoteCode.PREEXISTING, words)
