"""A tensor that native code destroyed or replaced and that was never made: its pointer is no address at all.

A function that is left without `return`, a member of a struct from malloc(), or a smashed stack leave garbage where a
tensor should be. torch's own helpers (`~Tensor`, `intrusive_ptr::reset_`) then fail; the function
of the program that they were called by is the one to look at.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words, hex_addr
from pytracer.analyze.evidence.native.fault_function import NativeFunction, fault_function, is_own_frame, own_function
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.passed import Passed
from pytracer.analyze.view import ProcessView

_ENDS = Pattern(r"(?:Tensor(?:Base)?::~Tensor|intrusive_ptr(?:<.*>)?::(?:~intrusive_ptr|reset_|operator=|retain_))")
_LEAST_ADDRESS = 1 << 16


class NeverMade(msgspec.Struct, frozen=True):
    """`function`: of the program, in which it happened; `held`: what was in the place of the pointer."""

    function: NativeFunction
    held: int

    @property
    def summary(self) -> str:
        """For the headline."""
        return f"used {hex_addr(self.held)} as a tensor, which was never made"

    def advice(self, found: Passed | None) -> str:
        """What to look for, and with what the function was called."""
        called = f" It was called with {found.words}." if found is not None and found.numbers else ""
        return (
            f"Check {self.function.words}: it destroys or replaces a tensor that was never made. Look for a way "
            "through it without `return` (-Wreturn-type), a tensor in memory of malloc(), or a write past a local "
            f"array (AddressSanitizer).{called}"
        )


def never_made(view: ProcessView) -> NeverMade | None:
    """None where the pointer may be an address, or no function of the program called torch's helpers."""
    own, instruction = own_function(view), view.instruction
    if own is None or own != fault_function(view) or instruction is None or instruction.base_value is None:
        return None
    if instruction.base_value >= _LEAST_ADDRESS and instruction.base_value % 8 == 0:
        return None
    return NeverMade(own, instruction.base_value) if _ends_tensor(view) else None


def _ends_tensor(view: ProcessView) -> bool:
    """Whether everything up to the program's function is about a tensor's end, inlined functions included."""
    for frame in own_frames(view):
        names = [frame.function, *(line.function for line in frame.lines or ())]
        if any(name and _ENDS.search(function_words(name)) for name in names):
            return True
        if is_own_frame(frame):
            return False
    return False
