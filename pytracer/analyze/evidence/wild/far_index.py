"""A number far too large for an array that is no tensor: a pointer into the stack or the heap + size * an index.

The index is in a register; or it is the one that NaN becomes in 32 bits, which is known without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytracer._text import list_words
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.evidence.indices.narrowed_floats import SMALLEST_32, SMALLEST_64, narrowing_lines
from pytracer.analyze.evidence.indices.written_value import origin_words
from pytracer.analyze.evidence.lifetime.shared_writes import shared_write
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.in_backward import backward, changed_advice, saved_advice, saved_words
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, tensor_name, tensor_with
from pytracer.analyze.evidence.own_code.cut_numbers import cut_number
from pytracer.analyze.evidence.own_code.index_arrays import index_arrays
from pytracer.analyze.evidence.own_code.lookups import reads_index
from pytracer.analyze.evidence.own_code.own_index import OwnIndex
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_INDEFINITE = (SMALLEST_32, SMALLEST_64)
_SCALES = (2, 4, 8, 16)
_LEAST_BYTES = 1 << 30  # no two numbers in registers happen to give the address exactly, and so far away
_LEAST_KNOWN = 1 << 16  # of a number that is the smallest or largest one of the operator's integers


@dataclass(frozen=True)
class FarIndex(Explanation):
    """The address is what `pointer` held + `scale` * `value`, which `index` held; `stack`: of this thread's stack.

    `index` is None where only the sum is left. `own`: the array and the index by the program's own source.
    """

    verdict_class = "out-of-bounds"
    pointer: str
    index: str | None
    value: int
    scale: int
    stack: bool
    own: OwnIndex | None = None

    @property
    def is_converted(self) -> bool:
        """Whether it is the number that NaN becomes."""
        return self.value in _INDEFINITE

    def is_of_tensor(self, view: ProcessView) -> bool:
        """Whether a tensor is known that has the number."""
        return _tensor(view, self.value) is not None

    def with_source(self, own: OwnIndex | None) -> FarIndex:
        """With what the source says."""
        return replace(self, own=own)

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        if self.own is not None:
            return f": {self.own.summary(self.value)}"
        where = "on its stack" if self.stack else "in its memory"
        index, saved = _tensor(view, self.value), backward(view)
        of = f" of {tensor_name(index)}" if index is not None else ""
        own = self._taken(view) if index is None else None
        of = f", which {own[0]} takes from {own[1]}," if own is not None else of
        cut = cut_number(view, self.value) if index is None and own is None else None
        why = cut.clause if cut is not None else self._converted(view)
        found = f": index {self.value}{of} leads out of an array {where}{why}"
        if index is None or saved is None:
            return found
        write = shared_write(view, index.item.base)
        by = f": {write.words}" if write is not None else ""
        return f"{found}, {saved_words(saved)}, and which was probably overwritten since{by}"

    def _taken(self, view: ProcessView) -> tuple[str, str] | None:
        """`ops.c:10` and `` `labels` [64] ``, by the program's own source."""
        found = index_arrays(view, self.value) if self.value in _INDEFINITE else None
        return (
            (found[0], list_words([item.words for item in found[1]], conjunction="or")) if found is not None else None
        )

    def _converted(self, view: ProcessView) -> str:
        """What the processor gives for a float that is no whole number of that many bits."""
        if self.value not in _INDEFINITE:
            return ""
        lines = narrowing_lines(view, self.value)
        by = f", as by {lines}" if lines is not None else ""
        return f"; NaN, infinity and numbers that are too large become that index{by}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        own = Evidence(
            "address-sum",
            f"the address is what {self.pointer} held + {self.scale} * {self.value}"
            + (f", which {self.index} held" if self.index is not None else ""),
            register=self.index,
            value=self.value,
            scale=self.scale,
        )
        return (own, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        if self.own is not None:
            return self.own.advice(self.value)
        index, saved, line = _tensor(view, self.value), backward(view), line_words(view)
        own = self._taken(view) if index is None else None
        if own is not None:
            lines = narrowing_lines(view, self.value)
            made = f"what {lines} makes integers of" if lines is not None else "what its integers are made of"
            return (
                f"Ask isfinite() of {made}, and drop or mask what is not finite before {line} passes {own[1]}. "
                f"{own[0]} uses the index unchecked: let it refuse what is below 0 or beyond the length."
            )
        cut = cut_number(view, self.value) if index is None else None
        if cut is not None:
            return cut.advice
        if index is None and reads_index(view):
            return (
                f"Check the arrays that {line} passes, their lengths and the numbers in them: index {self.value} was "
                "probably read from one of them, or from behind its end, and the function uses it unchecked."
            )
        if index is None and saved is not None:
            return changed_advice(saved)
        if index is None and self.value in _INDEFINITE:
            return (
                f"Ask `np.isfinite(x).all()` of the arrays and tensors of floats that {line} passes, and of what they "
                f"are computed from (a division of 0 by 0, the logarithm of 0): {self.value} is what NaN, infinity and "
                "numbers that are too large become when they are converted to a whole number. A test such as `x < 0 or "
                "x >= n` is False for NaN; `not (0 <= x < n)` refuses it, too."
            )
        if index is None:
            return (
                f"Check the numbers that {line} passes: an argument, such as a dimension or an index, is {self.value} "
                "or leads to that number, and the function uses it unchecked."
            )
        if saved is not None:
            return saved_advice(view, saved, index)
        origin = origin_words(view, self.value, index.item.base, tensor_name(index) if index.name else None)
        return (
            f"Check the values of {tensor_name(index)} before {line} passes it: {self.value} must not be among them "
            f"(min(), max()). {origin} The function does not check it."
        )


def _tensor(view: ProcessView, value: int) -> OperatorTensor | None:
    """The operator's integer tensor that has it as its smallest or largest element, else the only one it may be in."""
    operator = find_operator(view)
    exact = tensor_with(operator, value)
    if exact is not None or operator is None:
        return exact
    passed = (item for item in operator.tensors if item.passed)
    found = [item for item in passed if _spans(item.item.minimum, item.item.maximum, value)]
    return found[0] if len(found) == 1 else None


def _spans(low: int | None, high: int | None, value: int) -> bool:
    return low is not None and high is not None and low < value < high


def far_index(view: ProcessView) -> FarIndex | None:
    """The one way in which registers give the fault address; None when there is none, or more than one value fits."""
    crash, place = view.crash, view.place
    if crash is None or place is None:
        return None
    held = data_registers(crash)
    mapped = {name: mapping for name, value in held.items() if (mapping := mapping_at(crash.mappings, value))}
    writable = [name for name, mapping in mapped.items() if mapping.permissions.startswith("rw")]
    found, operator = {}, find_operator(view)
    for pointer in writable:
        for index in held.keys() - mapped.keys():
            value = signed(held[index])
            least = _LEAST_BYTES if abs(value) < _LEAST_KNOWN or tensor_with(operator, value) is None else 0
            for scale in _SCALES:
                if abs(scale * value) < least or (held[pointer] + scale * value - place.addr) % (1 << 64):
                    continue
                low, high = crash.stack or (0, 0)
                found[value] = FarIndex(pointer, index, value, scale, low <= held[pointer] < high)
    return next(iter(found.values())) if len(found) == 1 else _converted_index(view, writable) if not found else None


def _converted_index(view: ProcessView, pointers: Sequence[str]) -> FarIndex | None:
    """The number is in no register, but what it leads to is: exactly so far away lies what a register points at."""
    crash, place = view.crash, view.place
    if crash is None or place is None:
        return None
    held, found = data_registers(crash), {}
    for pointer in pointers:
        for scale in (1, *_SCALES):
            if (held[pointer] + scale * SMALLEST_32 - place.addr) % (1 << 64) == 0:
                low, high = crash.stack or (0, 0)
                found[scale] = FarIndex(pointer, None, SMALLEST_32, scale, low <= held[pointer] < high)
    return next(iter(found.values())) if len(found) == 1 else None
