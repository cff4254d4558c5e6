"""heap-corruption: the heap was damaged, and the allocator noticed or died of it.

What: the C library printed one of its texts ("free(): invalid pointer", "double free or corruption", "corrupted size
vs. prev_size" ...) and aborted, or a fault happened inside malloc() or free(). Each text is explained.

Why it happens: native code wrote past the end of a block or into one that was freed, freed a block twice, or freed
memory of another allocator. An extension that was built against another torch, NumPy or C++ ABI does all of these.

What to do: the damage was done earlier and elsewhere. Run it with MALLOC_CHECK_=3 (and libc_malloc_debug.so.0 in
LD_PRELOAD since glibc 2.34), under AddressSanitizer or valgrind; rebuild extensions against the torch in use.

How it can be wrong: a fault inside free() also follows from one bad argument with the heap in order. The stack shows
who noticed, not who did it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import function_words
from pytracer.analyze.evidence.aborts import is_abort
from pytracer.analyze.evidence.heap import HeapDamage, allocator_user, heap_damage
from pytracer.analyze.evidence.phrases import collective_evidence, fault_evidence, python_evidence
from pytracer.analyze.view import (
    Draft,
    JobView,
    Outcome,
    ProcessView,
    draft,
    group_alike,
    not_found,
    subject_words,
)
from pytracer.report.job import Evidence

_ADVICE = (
    "The damage was done earlier and elsewhere: run it with MALLOC_CHECK_=3, under AddressSanitizer or valgrind, and "
    "rebuild native extensions against the torch in use."
)


class HeapCorruption:
    """Fires for the C library's texts about the heap, and for faults inside its allocator."""

    id = "heap-corruption"
    needs = ("crash",)

    def examine(self, job: JobView) -> Outcome:
        """One finding per group of processes that died alike."""
        damaged = [view for view in job.suspects if heap_damage(view) is not None]
        drafts = [self._explain(views) for views in group_alike(damaged)]
        return Outcome(tuple(drafts)) if drafts else not_found("no allocator complained, and none died")

    def _explain(self, views: Sequence[ProcessView]) -> Draft:
        view = views[0]
        damage = heap_damage(view) or HeapDamage(None, None, None)
        user = allocator_user(view)
        below = f", below {function_words(user)}" if user else ""
        return draft(
            self.id,
            "heap-corruption",
            "certain" if damage.text else "likely",
            views,
            f"{subject_words(views)} {_what(damage)}{below}.",
            [
                Evidence("SIGABRT, sent by the process itself", "signal") if is_abort(view) else fault_evidence(view),
                f"the C library printed: {damage.text}" if damage.text else None,
                python_evidence(view),
                collective_evidence(views),
            ],
            _ADVICE,
            [
                "what the allocator printed" if damage.function is None and damage.text is None else None,
                "who damaged the heap: only who noticed is known",
            ],
        )


def _what(damage: HeapDamage) -> str:
    if damage.function is not None:
        return f"died inside the allocator ({damage.function}): its heap was damaged, or it was given a bad pointer"
    meaning = f": {damage.meaning}" if damage.meaning else ""
    return f"aborted because the C library found its heap damaged{meaning}"
