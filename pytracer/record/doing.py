"""What the process does, in the words of the framework that runs it: a test, a cell of a notebook, an epoch.

Written twice. An entry of the journal outlives everything, but there is room for some thousands of them only; a record
of the calling thread's ring is overwritten by 256 later ones.
"""

from __future__ import annotations

from pytracer.blackbox.numbers import TEXT_RECORD_BYTES, Entry
from pytracer.record.api import is_enabled
from pytracer.record.bootstrap.dynamo import is_compiling, unseen
from pytracer.record.core import core

MOST_BYTES = 256 * 1024  # of all entries of a process; the journal has 2 MiB
MOST_CHARACTERS = 400
MOST_SOURCE_CHARACTERS = 4000

_used = 0


@unseen
def doing(kind: str, text: str, *, lasting: bool = True, **more: str) -> None:
    """Notes what begins now. Does nothing if recording is off, or in a function that torch.compile compiles.

    Args:
        kind: "test", "phase" of a test, "cell", "epoch", or "name" for what the process is.
        text: its name; the end of a long one is left out.
        lasting: into the journal, too.
        more: of a cell, for the journal: "file" and "source", of which the beginning is kept.
    """
    global _used
    if is_compiling() or not is_enabled():
        return
    text = " ".join(text.split())[:MOST_CHARACTERS]
    payload = f"{kind}: {text}".encode("utf-8", "replace")
    if lasting and _used < MOST_BYTES:
        more = {name: value[:MOST_SOURCE_CHARACTERS] for name, value in more.items()}
        _used += len(payload) + sum(map(len, more.values()))
        core().journal(Entry.DOING, {"kind": kind, "text": text, **more})
    core().lib.pytracer_mark(payload[:TEXT_RECORD_BYTES], min(len(payload), TEXT_RECORD_BYTES))
