"""trap: a breakpoint or trap instruction ended the process.

What: SIGTRAP from the processor: int3 or brk in the code, or a debugger's single step or watchpoint, with no debugger
there to take it.

Why it happens: a check in native code failed and stops with __builtin_debugtrap or a sanitizer's trap; a debugger was
attached and left its breakpoints behind when it went; or a function pointer led into the padding between functions,
which is int3.

What to do: look at the function that the native stack names. Run it under a debugger: it stops at that place.

How it can be wrong: padding that was jumped into cannot be distinguished from an inserted breakpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import hex_addr
from pytracer.analyze.evidence.native.native_stack import code_words
from pytracer.analyze.evidence.phrases import collective_evidence, in_function, python_evidence
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.signals import SI_KERNEL, SIGTRAP
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import FaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_WHAT = {
    1: "hit a breakpoint instruction",
    2: "was stopped by a single step with no debugger there",
    3: "was stopped at a branch with no debugger there",
    4: "hit a hardware watchpoint with no debugger there",
    SI_KERNEL: "hit a breakpoint instruction (int3)",
}


class Trap(FaultRule[None]):
    """Fires for SIGTRAP from the processor."""

    id = "trap"
    needs = ("crash",)
    signals = (SIGTRAP,)

    def judge(self, view: ProcessView) -> Judgement[None] | None:
        """See FaultRule."""
        known = view.crash is not None and view.crash.code in _WHAT
        return Judgement("trap", "certain" if known else "likely", (view,), None)

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See FaultRule."""
        view = judgement.views[0]
        crash, signal = view.crash, view.signal
        code = crash.code if crash else 0
        return Description(
            f"{introduction(judgement.views)} {_WHAT.get(code, 'was stopped by a trap')}{in_function(view)}.",
            [
                Evidence(
                    "signal",
                    f"SIGTRAP ({signal.code if signal else '?'}) in {code_words(crash, crash.pc)}",
                    signal="SIGTRAP",
                    code=signal.code if signal else None,
                    addr=hex_addr(crash.pc),
                )
                if crash
                else None,
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            "Look at the named function: a check in it stops with a trap, or a debugger left a breakpoint behind.",
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See FaultRule."""
        return not_found("nothing died of SIGTRAP")
