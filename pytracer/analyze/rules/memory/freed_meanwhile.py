"""freed-meanwhile: one thread used a storage while another one freed it, and the memory has a new owner since.

What: the address lay in no mapping when the access was refused, and in a live storage when the crash handler looked.
The storage that had this memory before was freed by another thread than the crashed one, and the present one was not
allocated by the crashed thread either.

Why it happens: two threads share a tensor without keeping it: one replaces it (`self.buffer = torch.empty(...)`), and
the other one still works with its address in native code, without the GIL.
A lock that the line which frees the memory is below, and that the thread which used it has not taken, is named.

What to do: hand the thread a reference of its own to the tensor, or let the one that replaces it wait for the other.

How it can be wrong: the pointer may be older than the last owner. And the memory may have been unmapped and mapped
again by something else than these storages, which nothing records: so it is *likely*.
"""

from __future__ import annotations

from typing import Literal

from pytracer._text import hex_addr, size_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.lifetime.reallocation import Reallocation, reallocation_of
from pytracer.analyze.evidence.lifetime.unlocked_use import unlocked_use
from pytracer.analyze.evidence.phrases import (
    access_verb,
    fault_evidence,
    origin_words,
    python_evidence,
)
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import Evidence, Origin


class FreedMeanwhile(StorageFaultRule[Reallocation]):
    """Fires for an address that was in no mapping at the fault and in a newer storage right after it."""

    id = "freed-meanwhile"
    needs = ("crash", "storages", "mappings")
    absent = "no fault address lay in memory that another thread freed and that was allocated again at once"

    def judge(self, view: ProcessView) -> Judgement[Reallocation] | None:
        """See FaultRule."""
        lives = reallocation_of(view)
        return Judgement("use-after-free", "likely", (view,), lives) if lives is not None else None

    def describe(self, job: JobView, judgement: Judgement[Reallocation]) -> Description:
        """See FaultRule."""
        view, lives = judgement.views[0], judgement.found
        made, freed = view.storages.life(lives.used)
        again, _ = view.storages.life(lives.since)
        unlocked = unlocked_use(view, lives.used)
        below = f"; {unlocked.summary}" if unlocked is not None else ""
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} memory that another thread freed"
            f"{_at(freed)} meanwhile: a storage of {size_words(lives.used.nbytes)}, whose memory was allocated "
            f"again{_at(again)}{below}.",
            [
                fault_evidence(view),
                Evidence(
                    "mapping",
                    "the address was in no mapping when it was used, and in a live storage right after that",
                    addr=view.fault.addr if view.fault else None,
                    base=hex_addr(lives.since.base),
                    nbytes=lives.since.nbytes,
                ),
                _end("allocation", "allocated", lives.used, made),
                _end("free", "freed", lives.used, freed),
                _end("allocation", "its memory was allocated again", lives.since, again),
                python_evidence(view),
            ],
            unlocked.advice if unlocked is not None else _advice(view, freed),
            ["whether the pointer belonged to that storage: it may be older"],
            behind=Behind.of([], freed.place if freed is not None else None, unlocked)
            if unlocked is not None
            else None,
        )


def _end(kind: Literal["allocation", "free"], verb: str, storage: Storage, origin: Origin | None) -> Evidence | None:
    if origin is None:
        return None
    thread = f" (thread {tid})" if (tid := storage.freed_thread if kind == "free" else storage.allocated_thread) else ""
    return Evidence(
        kind,
        f"{origin_words(verb, origin)}{thread}",
        base=hex_addr(storage.base),
        nbytes=storage.nbytes,
        python=origin.place,
        step=origin.step,
        time=origin.time,
        thread=origin.thread,
        tid=tid,
    )


def _at(origin: Origin | None) -> str:
    place = origin.place if origin is not None else None
    return f" at {place_words(place)}" if place is not None else ""


def _advice(view: ProcessView, freed: Origin | None) -> str:
    frame, place = view.python_frame, freed.place if freed is not None else None
    user = f"the thread that runs {place_words(frame)}" if frame is not None else "the thread that uses it"
    return (
        f"Give {user} a reference of its own to the tensor for as long as it works on the memory, or let "
        f"{place_words(place) if place is not None else 'the line that frees it'} wait for it (a lock, join())."
    )
