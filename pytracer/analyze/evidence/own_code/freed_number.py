"""What a line frees by ctypes is no address, but the half of one: its `restype` or its `argtypes` are not set."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.wild.cut_argument import CutArgument, cut_argument
from pytracer.analyze.evidence.wild.cut_handle import CutHandle, cut_handle
from pytracer.analyze.view import ProcessView


class FreedNumber(msgspec.Struct, frozen=True):
    """`cut` is what the line passes."""

    cut: CutHandle | CutArgument
    line: str
    advice: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        if isinstance(self.cut, CutArgument):
            return f"free() was given the lower 32 bits of {self.cut.source}"
        passed = f"free() was given the number {self.cut.value} of `{self.cut.name}`, which {self.line} passes"
        if self.cut.returned is None:
            return f"{passed}, as an address, which has 64 bits"
        return f"{passed}: the lower 32 bits of {self.cut.returned.source}"


def freed_number(view: ProcessView) -> FreedNumber | None:
    """None where the address that was freed is no number of 32 bits of the line, nor the half of one."""
    cut = cut_handle(view) or cut_argument(view)
    return FreedNumber(cut, line_words(view), cut.advice(view)) if cut is not None else None
