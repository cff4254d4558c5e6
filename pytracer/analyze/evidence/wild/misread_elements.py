"""An index that is two integers of 32 bits, read as one of 64: the array has another type than the native code takes.

By the source of the program's own function, which takes elements of 64 bits and indexes by them; or, without it, by the
memory of the array, or by the number alone: its halves are small, and one array of such integers is passed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.own_code.arrays import array_words, held_array
from pytracer.analyze.evidence.own_code.element_uses import first_indexed, leads_to_memory
from pytracer.analyze.evidence.own_code.own_libraries import passed_by
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.own_code.passed_memory import held_tensor
from pytracer.analyze.evidence.own_code.unfit_memory import UnfitMemory, unfit_memory
from pytracer.analyze.evidence.syntax.calls import calls_on
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.far_index import FarIndex, far_index
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_HALF, _WHOLE = 1 << 32, 1 << 64
_LARGEST = 1 << 24  # of an element that is an index, a class or a length
_NARROW, _WIDE = 4, 8  # bytes
_INTEGERS = ("int32", "uint32")
_FLOATS = ("float", "double")


class _Narrow(msgspec.Struct, frozen=True):
    """An array of integers of 32 bits from `data` on; `low` and `high`: of its numbers, where they were read."""

    name: str
    words: str
    data: int
    elements: int
    low: int | None = None
    high: int | None = None

    def may_have(self, number: int) -> bool:
        """Whether a number may be among its elements."""
        return self.low is None or self.high is None or self.low <= number <= self.high


@dataclass(frozen=True)
class MisreadElements(Explanation):
    """`low` + `high` * 2**32 is the index. `name`: of the array, `words`: `` `actions` [256] int32 ``.

    `unfit`: what the function takes, by its source. `seen`: whether the memory of the array holds the two.
    """

    verdict_class = "out-of-bounds"
    names_source = True
    far: FarIndex
    low: int
    high: int
    name: str
    words: str
    unfit: UnfitMemory | None
    seen: bool

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely" if self.unfit is not None or self.seen else "possible"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        two = f": the index {self.far.value} is {self.low} + {self.high} * 2**32, two integers of 32 bits read as one"
        if self.unfit is not None:
            return f"{two}; {self.unfit.summary}"
        return f"{two}, {'as' if self.seen else 'maybe'} of {self.words}, which {line_words(view)} passes"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        held = "the memory of the array has the two side by side" if self.seen else "its halves are small"
        own = Evidence(
            "index",
            f"{self.far.value} is {self.low} + {self.high} * 2**32: {held}; the array is {self.words}",
            tensor=self.name,
            value=self.far.value,
        )
        return (own, self._used(view), *self.far.evidence(view, address))

    def _used(self, view: ProcessView) -> Evidence | None:
        """Where the source indexes by an element of the array."""
        definition = own_definition(view, self.unfit.function) if self.unfit is not None else None
        parameter = self.unfit.parameter.name if self.unfit is not None else ""
        found = first_indexed(definition.body, parameter) if definition is not None else None
        if definition is None or found is None:
            return None
        text, lines = found
        place = f"{definition.file}:{definition.line + lines}"
        return Evidence("source-line", f"{place} indexes by an element of `{parameter}`: `{text}`", text=text)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        if self.unfit is not None:
            return self.unfit.advice(view)
        return (
            f"Check the type of `{self.name}`, which {line_words(view)} passes: the native code probably takes "
            "elements of 64 bits. Convert it before (`.astype(np.int64)`, `.long()`), or let the function take "
            "int32_t. Nothing checks that: np.ctypeslib.ndpointer(dtype) in argtypes, or data_ptr<T>() in C++, refuses "
            "another type."
        )


def misread_elements(view: ProcessView) -> MisreadElements | None:
    """None where the index is no such number, or no array of 32 bits may have it."""
    far = far_index(view)
    halves = _halves(far.value) if far is not None else None
    if far is None or halves is None:
        return None
    low, high = halves
    unfit = unfit_memory(view)
    arrays = [*_narrow(view)]
    if unfit is not None and _may_be_index(view, unfit):
        seen = any(item.name == unfit.name and _has(view, item, far) for item in arrays)
        return MisreadElements(far, low, high, unfit.name, unfit.words, unfit, seen)
    function = own_function(view)
    if function is not None and own_definition(view, function.name.rpartition("::")[2]) is not None:
        return None  # it takes what it is given, or does not index by it
    holding = [item for item in arrays if _has(view, item, far)]
    possible = [item for item in arrays if item.may_have(low) and item.may_have(high)] if low > 0 < high else []
    if len(holding or possible) != 1:
        return None
    (array,) = holding or possible
    return MisreadElements(far, low, high, array.name, array.words, None, bool(holding))


def _halves(value: int) -> tuple[int, int] | None:
    """As two integers with a sign; None where one is large, or the upper one is no element of its own."""
    whole = value % _WHOLE
    low, high = (half - _HALF if half >> 31 else half for half in (whole % _HALF, whole >> 32))
    small = abs(low) < _LARGEST and abs(high) < _LARGEST
    return (low, high) if small and high and (low, high) != (value, -1) else None


def _may_be_index(view: ProcessView, unfit: UnfitMemory) -> bool:
    """Whether the function takes whole numbers of 64 bits, and its source uses them as indices."""
    wide = unfit.parameter.nbytes == _WIDE and unfit.parameter.element not in _FLOATS
    definition = own_definition(view, unfit.function) if wide and unfit.nbytes == _NARROW else None
    return definition is not None and unfit.misread is None and leads_to_memory(definition.body, unfit.parameter.name)


def _narrow(view: ProcessView) -> Iterator[_Narrow]:
    """Arrays and tensors of 32 bits whose addresses the line passes to native code."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    calls = calls_on(tree, frame.line) if tree is not None and frame is not None and frame.line is not None else []
    for name in dict.fromkeys(
        name for node in calls if isinstance(node.func, ast.Attribute) for name in passed_by(node)
    ):
        array, tensor = held_array(view, name), held_tensor(view, name)
        if array is not None and array.dtype in _INTEGERS and array.in_a_row:
            yield _Narrow(name, array_words(array), array.data, math.prod(array.shape))
        elif tensor is not None and tensor.dtype in _INTEGERS and tensor.data is not None:
            words = f"`{name}` {shape_words(tensor)} {tensor.dtype}"
            yield _Narrow(name, words, tensor.data, tensor.elements, tensor.minimum, tensor.maximum)


def _has(view: ProcessView, array: _Narrow, far: FarIndex) -> bool:
    """Whether memory that was recorded shows the number at an even element of the array."""
    number, end = (far.value % _WHOLE).to_bytes(_WIDE, "little"), array.data + _NARROW * array.elements
    return any(
        block.content[addr - block.addr :][:_WIDE] == number
        for block in (view.crash.memory if view.crash is not None else ())
        for addr in range(array.data, min(end, block.addr + len(block.content)) - _WIDE + 1, _WIDE)
        if addr >= block.addr
    )
