"""memory-not-inherited: a forked child used a tensor whose memory exists in its parent only.

What: the tensor was made before the fork, and the child has it, but the address of its data is in no mapping of the
child. A checkpoint writer that is forked crashes so, in `crc32` below `PyTorchStreamWriter::writeRecord`.

Why it happens: fork() leaves memory out that is marked MADV_DONTFORK, as RDMA libraries mark what they registered, and
what drivers map with the same flag: pinned, managed and peer memory of CUDA.

What to do: start the child by spawn or forkserver, write the checkpoint on a thread, or copy the tensors into ordinary
memory before the fork: `tensor.clone()` of CPU memory that is not pinned.

How it can be wrong: the child itself may have unmapped the memory by munmap(), past the allocator. So it is likely, and
certain for memory that CUDA pinned.
"""

from __future__ import annotations

from pytracer.analyze.evidence.lifetime.inherited_memory import fork_line, is_pinned, was_left_behind
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    fault_evidence,
    python_evidence,
    storage_evidence,
    tensor_and_line,
)
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_ADVICE = (
    "Start the child by spawn or forkserver, or let a thread do its work (async_save writes on threads by default); or "
    "copy the tensors into ordinary memory before the fork: tensor.clone() on the CPU, not pinned."
)


class MemoryNotInherited(StorageFaultRule[None]):
    """Fires in a forked process for a live storage that is older than it and lies in none of its mappings."""

    id = "memory-not-inherited"
    needs = ("crash", "storages", "mappings")
    absent = "no forked process used a storage of its parent that lay in no mapping"

    def judge(self, view: ProcessView) -> Judgement[None] | None:
        """See FaultRule."""
        if not was_left_behind(view):
            return None
        return Judgement("misuse", "certain" if is_pinned(view) else "likely", (view,), None)

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See FaultRule."""
        view = judgement.views[0]
        fork = fork_line(view)
        where = f" at {place_words(fork)}" if fork is not None else ""
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} memory of {tensor_and_line(view)}, "
            f"which the fork{where} did not copy: the child has the tensor, its memory is in the parent only.",
            [
                fault_evidence(view),
                storage_evidence(view),
                _absence(view),
                allocation_evidence(view.storage, "made"),
                python_evidence(view),
            ],
            _ADVICE,
            [
                None if is_pinned(view) else "who excluded the memory from fork (MADV_DONTFORK, a driver's mapping)",
                None if fork is not None else "the line that forked: the child's stack does not have it",
            ],
        )


def _absence(view: ProcessView) -> Evidence:
    return Evidence(
        "mapping",
        "the storage is older than this process, a copy made by fork(), and lies in none of its mappings"
        + ("; CUDA pinned it, and CUDA's mappings are never in a child" if is_pinned(view) else ""),
        addr=view.fault.addr if view.fault else None,
    )
