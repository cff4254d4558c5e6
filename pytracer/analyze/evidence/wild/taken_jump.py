"""A jump to no code: through an overwritten return address, function pointer or vtable."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer._text import hex_addr
from pytracer.analyze.evidence.native.jumps import Jump
from pytracer.analyze.evidence.operators.state_sizes import small_state
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_BY_JUMP = {
    "return": "Look for a write past a local array in the function that was returning, and in what it called; "
    "AddressSanitizer or -fstack-protector-all names it.",
    "call": "Look at the object whose method was called: it was overwritten, already destroyed, or of another class. "
    "Running it under AddressSanitizer names the moment.",
    None: "A function pointer, a vtable or a return address was overwritten: AddressSanitizer names the moment.",
}


@dataclass(frozen=True)
class WildJump(Explanation):
    """What was overwritten follows from how the processor got there; by whom is not known."""

    jump: Jump

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "certain" if self.jump.mapping is not None or self.jump.refused else "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        state = small_state(view)  # what was written over the object
        return f"; {state}" if state is not None else ""

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return _BY_JUMP[self.jump.how]


def jump_words(jump: Jump) -> str:
    """`returned to 0x4141414141414141: the return address on its stack was overwritten`."""
    target = hex_addr(jump.target) if jump.target is not None else "an address that is not known"
    where = f"data at {target}" if jump.mapping is not None else target
    if jump.how == "return":
        return f"returned to {where}: the return address on its stack was overwritten"
    if jump.how == "call":
        return f"called {where}: a function pointer or vtable was overwritten"
    return f"jumped to {where}: a function pointer, vtable or return address was overwritten"


def target_evidence(jump: Jump) -> Evidence | None:
    """Why no code can run at the target."""
    if jump.refused:
        return None
    target = hex_addr(jump.target) if jump.target is not None else None
    if jump.mapping is not None:
        owner = jump.mapping.path or "anonymous memory"
        return Evidence(
            "jump",
            f"the target lies in {owner} ({jump.mapping.permissions}), which cannot be executed",
            addr=target,
            path=jump.mapping.path or None,
            permissions=jump.mapping.permissions,
        )
    return Evidence("jump", "no code was mapped at the target", addr=target)


def refused_evidence(jump: Jump) -> Evidence:
    """The branch that the processor refused; the kernel gives no address for it."""
    target = f" to {hex_addr(jump.target)}" if jump.target is not None else ""
    where = "where no process can have memory (not canonical on x86-64)"  # other processors take the branch, then fault
    return Evidence(
        "access",
        f"SIGSEGV (SI_KERNEL): {jump.how}{target}, {where}",
        signal="SIGSEGV",
        code="SI_KERNEL",
        access="execute",
        addr=hex_addr(jump.target) if jump.target is not None else None,
    )
