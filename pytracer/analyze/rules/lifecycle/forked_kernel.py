"""forked-kernel: a forked child called a parallel kernel of numba, and numba's GNU OpenMP ended it.

What: a process that was forked sent SIGTERM to itself from the code of such a kernel, such as a DataLoader worker.

Why it happens: the threads of GNU OpenMP exist in the process that started them only. numba notices that a kernel with
`parallel=True` runs in another process than the first one did: it prints "Terminating: fork() called from a process
already using GNU OpenMP, this is unsafe." and raises SIGTERM, which looks as if somebody had ended the process.

What to do: take `parallel=True` out of the kernels that the children call, start the children by spawn, or choose
another threading layer (NUMBA_THREADING_LAYER=workqueue).

How it can be wrong: the code that raised the signal lies in no library, right below numba's, which is how kernels lie
in memory; a kernel that calls raise() itself looks the same. So it is likely, and certain where the line calls a
function that the program compiles with `parallel=True`.
"""

from __future__ import annotations

from pytracer.analyze.evidence.ends.forked_kernel import ForkedKernel, forked_kernel
from pytracer.analyze.evidence.phrases import python_evidence
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView


class ForkedKernelRule:
    """Fires for suspects that raised SIGTERM below numba, and are copies of their parent."""

    id = "forked-kernel"
    needs = ("SIGNAL_SEEN", "crash")

    def check(self, job: JobView) -> tuple[Judgement[ForkedKernel], ...] | NoFinding:
        """One judgement for all that ended at the same line."""
        judged = (_judge(view) for view in job.suspects if view.index not in job.explained)
        found = merge_alike(judged, lambda item: item.found.at)
        return found or not_found("no forked process raised SIGTERM in a kernel of numba")

    def describe(self, job: JobView, judgement: Judgement[ForkedKernel]) -> Description:
        """See Rule."""
        found = judgement.found
        return Description(
            f"{introduction(judgement.views)} {found.words}.",
            [python_evidence(judgement.views[0])],
            found.advice,
            [],
            line=found.at,
            names_cause=True,
            explained=True,
        )


def _judge(view: ProcessView) -> Judgement[ForkedKernel] | None:
    found = forked_kernel(view)
    if found is None:
        return None
    return Judgement("misuse", "certain" if found.kernel is not None else "likely", (view,), found)
