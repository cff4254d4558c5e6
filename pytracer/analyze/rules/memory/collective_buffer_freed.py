"""collective-buffer-freed: a tensor's memory was released while a collective still worked on it.

What: the process ended with the exception "Bad address", the kernel's error when a system call
is given memory that is not mapped; and a collective that did not complete had a tensor whose storage was freed after
the call.

Why it happens: with `async_op=True` the work reads and writes its tensors until `wait()` returns. It keeps the tensors
alive, but not their memory: `untyped_storage().resize_(0)`, `set_()` and FSDP's reshard release it all the same. gloo
hands the address to the kernel, which refuses it; a kernel that touches it itself dies of SIGSEGV instead
(use-after-free).

What to do: call `wait()` before the memory of the tensors is released or replaced.

How it can be wrong: times of frees are sparse: a storage that was freed in the moment in which the collective failed,
and because of that, would look the same.
"""

from __future__ import annotations

from pytracer._text import hex_addr, size_words
from pytracer.analyze.collectives.in_flight import FreedInFlight, bad_address
from pytracer.analyze.evidence.phrases import exception_evidence, python_evidence
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, cannot_decide, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame


class CollectiveBufferFreed:
    """Fires for "Bad address" where a collective's storage had been freed before it ended."""

    id = "collective-buffer-freed"
    needs = ("crash", "collectives", "storages")

    def check(self, job: JobView) -> tuple[Judgement[FreedInFlight], ...] | NoFinding:
        """One judgement per group of processes that died alike."""
        judgements = merge_alike(_judge(view) for view in job.suspects)
        if judgements:
            return judgements
        if job.suspects and not any(view.process.snapshot.storages for view in job.suspects):
            return cannot_decide("no storages were recorded")
        return not_found("nothing died of a bad address while a collective's memory had been freed")

    def describe(self, job: JobView, judgement: Judgement[FreedInFlight]) -> Description:
        """See Rule; the first process represents all that died alike."""
        view = judgement.views[0]
        call, freed = judgement.found.collective, _freed_at(judgement.found)
        where = f" at {place_words(freed)}" if freed else ""
        called = call.place
        begun = f" at {place_words(python_frame(called))}" if called else ""
        storage = judgement.found.storage
        memory = f"its storage of {size_words(storage.nbytes)} at {hex_addr(storage.base)}"
        exception = view.exception
        return Description(
            f"{introduction(judgement.views)} released memory{where} that {call.op} was still working on.",
            [
                exception_evidence(exception),
                Evidence(
                    "collective-state",
                    f"{call.op} (sequence number {call.sequence_nr}) was called{begun} and did not complete",
                    group=call.group,
                    op=call.op,
                    sequence_nr=call.sequence_nr,
                    state=call.state,
                    python=python_frame(called) if called else None,
                ),
                Evidence(
                    "free",
                    f"{memory} was freed{where} after the call",
                    base=hex_addr(storage.base),
                    nbytes=storage.nbytes,
                    python=freed,
                ),
                python_evidence(view),
            ],
            f"Call wait() on the work of {call.op} before its tensors are resized, replaced or released.",
            has_place=freed is not None,
        )


def _judge(view: ProcessView) -> Judgement[FreedInFlight] | None:
    hit = bad_address(view)
    return Judgement("use-after-free", "certain", (view,), hit) if hit is not None else None


def _freed_at(hit: FreedInFlight) -> PythonFrame | None:
    who = hit.storage.freed_by
    frame = who.place if who is not None else None
    return python_frame(frame) if frame is not None else None
