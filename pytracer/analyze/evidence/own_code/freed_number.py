"""What a line frees by ctypes is no address, but the half of one: of a function of C whose `restype` is not set."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.wild.cut_handle import CutHandle, cut_handle
from pytracer.analyze.view import ProcessView


class FreedNumber(msgspec.Struct, frozen=True):
    """`cut` is what the line passes."""

    cut: CutHandle
    line: str
    advice: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        passed = f"free() was given the number {self.cut.value} of `{self.cut.name}`, which {self.line} passes"
        if self.cut.returned is None:
            return f"{passed}, as an address, which has 64 bits"
        return f"{passed}: the lower 32 bits of {self.cut.returned.source}"


def freed_number(view: ProcessView) -> FreedNumber | None:
    """None where the address that was freed is no number of 32 bits of the line."""
    cut = cut_handle(view)
    return FreedNumber(cut, line_words(view), cut.advice(view)) if cut is not None else None
