"""Vector instructions that need an aligned address: the processor refuses them without a word on the address."""

from __future__ import annotations

from pytracer.analyze.platform.signals import SI_KERNEL
from pytracer.analyze.view import ProcessView

_ALIGNED = ("movaps", "movapd", "movdqa", "movntps", "movntpd", "movntdq", "vmovntps", "vmovntpd", "vmovntdq")


def needed_alignment(view: ProcessView) -> int | None:
    """The alignment in bytes that the refused instruction needs and its address has not; None for any other fault."""
    crash, place, instruction = view.crash, view.place, view.instruction
    if crash is None or place is None or instruction is None or crash.code != SI_KERNEL or not instruction.size:
        return None
    name = instruction.text.split(" ", 1)[0]
    aligned = name.removeprefix("v").startswith(_ALIGNED) or name in _ALIGNED
    mapped = place.kind != "non-canonical" and place.addr != 0
    return instruction.size if aligned and mapped and place.addr % instruction.size else None
