"""unmapped-memory: memory that the program had given back by munmap() was used.

What: the fault address is in no mapping, and a call of munmap() in this process gave it back before. It belonged to no
tensor: a file that was mapped, or a buffer of another library.

Why it happens: a view, a ctypes pointer or an object of a native library kept the address of a mapped file - `mmap`,
`np.memmap`, an LMDB transaction, an Arrow or safetensors file - beyond its `close()`, or beyond the life of the object
that unmaps it in `__del__` (a local `SharedMemory`, or one whose variable was set anew, to the array of its buffer).

What to do: keep it open for as long as its memory is used, or copy what is needed before it is closed.

How it can be wrong: the core remembers the last 512 calls, and sees those of other libraries, not the C library's own
nor raw system calls. An address that is wrong for another reason may lie in such a hole: the finding is never certain.
A loop that ran off the end of what lies right below stops at the first byte of the hole: it is *possible* there.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.address_space.stack_bounds import ran_over
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.lifetime.closed_owner import closed_owner
from pytracer.analyze.evidence.lifetime.dropped_owner import dropped_owner
from pytracer.analyze.evidence.lifetime.unmapping import (
    may_have_run_on,
    unmapper_words,
    unmapping_age,
    unmapping_evidence,
    unmapping_line,
    unmapping_of,
)
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.phrases import access_verb, fault_evidence, in_function, python_evidence
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Unmapping
from pytracer.report.job import Confidence


class UnmappedMemory(MemoryFaultRule[Unmapping]):
    """Fires for an address in no mapping and no storage, where the last thing known of it is its munmap()."""

    id = "unmapped-memory"
    needs = ("crash", "mappings")

    def judge(self, view: ProcessView) -> Judgement[Unmapping] | None:
        """See FaultRule."""
        unmapping = unmapping_of(view)
        if unmapping is None or view.place is None or view.place.kind != "unmapped":
            return None
        if ran_over(view) or wild_jump(view) is not None:
            return None
        confidence: Confidence = "possible" if may_have_run_on(view, unmapping) else "likely"
        return Judgement("use-after-free", confidence, (view,), unmapping)

    def describe(self, job: JobView, judgement: Judgement[Unmapping]) -> Description:
        """See FaultRule."""
        view, unmapping = judgement.views[0], judgement.found
        who = unmapper_words(view, unmapping)
        where = "" if view.python_frame else in_function(view)  # the line follows
        dropped, closed, age = dropped_owner(view), closed_owner(view), unmapping_age(view, unmapping)
        gave = f"{closed.by if closed is not None else who} gave it back {age} before"
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} memory that had been unmapped{where}: "
            f"{f'{dropped.summary}, {age} before' if dropped is not None else gave}{closed.still if closed else ''}.",
            [fault_evidence(view), unmapping_evidence(view), python_evidence(view)],
            dropped.advice("its memory is used")
            if dropped is not None
            else closed.advice("its memory")
            if closed is not None
            else f"What was mapped there was closed too early, by {who}: close it when nothing uses its memory any "
            "more (pointers and native readers do not keep it open), or copy what is needed first.",
            [
                None if unmapping_line(unmapping) else "the Python line that gave it back",
                "what had been mapped there: the calls of mmap() are not recorded",
            ],
            behind=_behind(view),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See FaultRule."""
        return not_found("no fault address lay in memory that a recorded munmap() had given back")


def _behind(view: ProcessView) -> Behind | None:
    """The lines that closed the owner, or that let it go by setting its variable anew."""
    closed, dropped = closed_owner(view), dropped_owner(view)
    replaced = dropped.replaced if dropped is not None else None
    found = closed or replaced
    return Behind.of([], found) if found is not None else None
