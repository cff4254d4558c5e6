"""A small number that was called: it was taken for the address of a function, as null would be, but it is not null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import hex_addr
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.native.jumps import Jump
from pytracer.analyze.evidence.native.native_stack import below_function
from pytracer.analyze.evidence.own_code.ctypes_call import (
    NumberAsPointer,
    declaration_advice,
    number_as_pointer,
    unlike_structures,
)
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_NEAR_NULL = "near-null"
_MOST = 1 << 32


@dataclass(frozen=True)
class CalledNumber(Explanation):
    """`value` was called; `by_ctypes`: below a function that ctypes called."""

    value: int
    by_ctypes: NumberAsPointer | None

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return self.by_ctypes is not None and self.by_ctypes.field is not None

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        number = f"{self.value} ({hex_addr(self.value)})" if self.value < _MOST else hex_addr(self.value)
        return f"called the number {number} as a function{below_function(view)}"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        summary = self.by_ctypes.summary(view) if self.by_ctypes is not None else ""
        return f": {summary}" if summary else ""

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        own = Evidence(
            "jump", f"{hex_addr(self.value)} is too small for the address of a function, and it is not null",
            addr=hex_addr(self.value), value=self.value,
        )  # fmt: skip
        return (own,)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        found = self.by_ctypes
        if found is not None and (found.names or found.field is not None or any(True for _ in unlike_structures(view))):
            return declaration_advice(view, found)
        return (
            f"Check where {_function(view)} takes the function pointer from: {self.value} was there. Arguments or "
            "fields may be in another order or of another size than it expects, or the memory was overwritten or never "
            "initialised."
        )


def _function(view: ProcessView) -> str:
    """`run (run.c:9)`, or what the line runs."""
    function = own_function(view)
    return function.words if function is not None else f"the native code that {line_words(view)} runs"


def called_number(view: ProcessView, jump: Jump) -> CalledNumber | None:
    """None of a return, and of an address that may be one, unless it is known as a number of the program."""
    if jump.how == "return" or not jump.target:
        return None
    found = number_as_pointer(view)
    small = view.place is not None and view.place.kind == _NEAR_NULL
    return CalledNumber(jump.target, found) if small or found is not None else None
