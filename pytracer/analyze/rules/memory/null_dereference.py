"""null-dereference: native code used a null pointer.

What: the kernel refused an access at address 0, or a small offset from it, and the register that the address was
formed from was null.

Why it happens: an object that was never made, was already destroyed, or a failed call whose result was not checked;
in ctypes code, a missing `argtypes`/`restype` or a Python None passed as a pointer.

What to do: look at the native function and at the Python line that called it; check that what it is given exists.

How it can be wrong: without capstone the operands are unknown, so that a garbage pointer with a small value can
look like null plus an offset; the confidence is lower then. A pointer to a member of a null object was already
moved off null by the caller and is told from garbage only by its alignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.address_space.null_pointer import null_confidence
from pytracer.analyze.evidence.native_stack import below_function
from pytracer.analyze.evidence.phrases import (
    collective_evidence,
    fault_evidence,
    in_function,
    missing_operands,
    python_evidence,
)
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView


class NullDereference(MemoryFaultRule[None]):
    """Fires when the address is close to zero and its base register was null, or nothing speaks against that."""

    id = "null-dereference"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[None] | None:
        """See MemoryFaultRule."""
        confidence = null_confidence(view)
        return Judgement("null-dereference", confidence, (view,), None) if confidence is not None else None

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See MemoryFaultRule."""
        view = judgement.views[0]
        addr = view.place.addr if view.place else 0
        crash = view.crash
        where = below_function(view) if crash is not None and crash.pc == addr else in_function(view)
        target = "a null pointer" if addr == 0 else f"a null pointer plus {addr} bytes"
        return Description(
            f"{introduction(judgement.views)} {_verb(view)} through {target}{where}.",
            [fault_evidence(view), python_evidence(view), collective_evidence(judgement.views)],
            _advice(view),
            [missing_operands(view)],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no address was null or a small offset from a null register")


def _advice(view: ProcessView) -> str:
    what = (
        "what the Python line passes to the native function" if view.python_frame else "what the native code is given"
    )
    return f"Check {what}: something is null (never made, already destroyed, or the result of a failed call)."


def _verb(view: ProcessView) -> str:
    access = view.fault.access if view.fault else None
    verbs = {"read": "read", "write": "wrote", "execute": "called a function"}
    return verbs.get(access or "", "accessed memory")
