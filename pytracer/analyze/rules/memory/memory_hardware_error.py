"""memory-hardware-error: the machine's memory could not be read back.

What: SIGBUS with the code BUS_MCEERR_AR or BUS_MCEERR_AO: the hardware reported a memory error that it could not
correct in a page of this process.

Why it happens: a memory module is failing, or a cosmic ray hit it. The program did nothing wrong.

What to do: take the node out of service and check its memory (dmesg, `rasdaemon`, `edac-util`); start again
elsewhere.

How it can be wrong: only where errors are injected on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.evidence.phrases import fault_evidence, in_function, python_evidence
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.signals import SIGBUS
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import FaultRule
from pytracer.analyze.view import JobView, ProcessView

BUS_MCEERR_AR, BUS_MCEERR_AO = 4, 5


class MemoryHardwareError(FaultRule[None]):
    """Fires for SIGBUS that reports a machine check."""

    id = "memory-hardware-error"
    needs = ("crash",)
    signals = (SIGBUS,)

    def judge(self, view: ProcessView) -> Judgement[None] | None:
        """See FaultRule."""
        if view.crash is None or view.crash.code not in (BUS_MCEERR_AR, BUS_MCEERR_AO):
            return None
        return Judgement("hardware-error", "certain", (view,), None)

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See FaultRule."""
        view = judgement.views[0]
        host = view.process.snapshot.host
        return Description(
            f"{introduction(judgement.views)} met memory that the hardware of {host} cannot read back"
            f"{in_function(view)}.",
            [fault_evidence(view), python_evidence(view)],
            f"Take {host} out of service and check its memory (dmesg); the program did nothing wrong.",
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See FaultRule."""
        return not_found("the hardware reported no memory error")
