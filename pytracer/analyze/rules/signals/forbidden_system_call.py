"""forbidden-system-call: a system call was refused by a filter that ends who tries.

What: SIGSYS from a seccomp filter. The system call is named from the register that held its number.

Why it happens: a container's or sandbox's seccomp profile does not allow what a library needs, often because it is
older than the system call; or the process installed a filter of its own.

What to do: allow the system call in the profile (`docker run --security-opt seccomp=profile.json`; `=unconfined` to
check), or update the container's runtime.

How it can be wrong: most profiles answer with an error instead, and some kill without a signal that can be handled:
then there is no crash record. On aarch64 only the common ones are named.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.evidence.phrases import collective_evidence, in_function, python_evidence
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.signals import SIGSYS
from pytracer.analyze.platform.system_calls import system_call_name
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import FaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

SYS_SECCOMP = 1


class ForbiddenSystemCall(FaultRule[str | None]):
    """Fires for SIGSYS from the kernel."""

    id = "forbidden-system-call"
    needs = ("crash",)
    signals = (SIGSYS,)

    def judge(self, view: ProcessView) -> Judgement[str | None] | None:
        """See FaultRule."""
        filtered = view.crash is not None and view.crash.code == SYS_SECCOMP
        return Judgement("forbidden-system-call", "certain" if filtered else "likely", (view,), _name(view))

    def describe(self, job: JobView, judgement: Judgement[str | None]) -> Description:
        """See FaultRule."""
        view, name = judgement.views[0], judgement.found
        crash, signal = view.crash, view.signal
        by = "a seccomp filter" if crash is not None and crash.code == SYS_SECCOMP else "the kernel"
        return Description(
            f"{introduction(judgement.views)} made a system call that {by} forbids{f', {name}' if name else ''}"
            f"{',' if name and view.function else ''}{in_function(view)}.",
            [
                Evidence(
                    "signal",
                    f"SIGSYS ({signal.code if signal else '?'})" + (f", system call {name}" if name else ""),
                    signal="SIGSYS",
                    code=signal.code if signal else None,
                    function=name,
                ),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            f"Allow {name or 'it'} in the seccomp profile of the container or sandbox, or update its runtime.",
            [] if name else ["which system call it was"],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See FaultRule."""
        return not_found("nothing died of SIGSYS")


def _name(view: ProcessView) -> str | None:
    """Its number is in rax again when the signal is sent (kernel/seccomp.c: syscall_rollback), on aarch64 in x8."""
    if view.crash is None:
        return None
    registers = {name.lower(): value for name, value in view.crash.registers.items()}
    number = registers.get("rax", registers.get("x8"))
    return None if number is None else system_call_name(number, view.process.snapshot.arch)
