"""An index that is the bits of a float: what a function read as a whole number of 64 bits lies behind an array of such.

By the number itself, by the arrays that the line passes, and, where it is known, by the source of the program's own
function: the element that it takes an index from. Arrays that are views of one buffer lie one behind another.
"""

from __future__ import annotations

import ast
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytracer._text import shortened
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.operators.operator import find_operator, tensor_with
from pytracer.analyze.evidence.own_code.arrays import array_words, held_array, line_arrays
from pytracer.analyze.evidence.own_code.c_text import declared_name, split
from pytracer.analyze.evidence.own_code.index_reads import IndexRead, index_reads
from pytracer.analyze.evidence.own_code.looked_up import looked_up
from pytracer.analyze.evidence.own_code.own_libraries import passed_in
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.own_code.unfit_memory import unfit_memory
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.far_index import FarIndex, far_index
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray
from pytracer.report.job import Confidence, Evidence

_LEAST, _LARGEST = 2.0**-20, 2.0**40  # of a float that data has
_WIDE = 8
_WHOLE = ("int64", "uint64")
_FLOATS = ("float64", "float32")
_FEW = 64  # a length that a register may hold by chance
_LONGEST = 60


@dataclass(frozen=True)
class Behind:
    """`array` ends where `other`, an array of floats, begins. `length`: the register that held its length."""

    array: HeldArray
    other: HeldArray | None
    length: str | None

    @property
    def words(self) -> str:
        """`` behind the end of `col` [50878] int64, where `weight` [50878] float64 begins ``."""
        begins = f", where {array_words(self.other)} begins" if self.other is not None else ""
        return f"behind the end of {array_words(self.array)}{begins}"


@dataclass(frozen=True)
class FloatIndex(Explanation):
    """`number`: what the bits are. `into`: the array that the index led out of; `read`: where the source reads it."""

    verdict_class = "out-of-bounds"
    names_source = True
    far: FarIndex
    number: float
    function: str | None
    into: HeldArray | None
    behind: Behind | None
    read: IndexRead | None

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        who = f"{self.function}() used" if self.function is not None else "it used"
        into = f" into {array_words(self.into)}" if self.into is not None else ""
        bits = f": {who} {self.far.value} as an index{into}, which is the bits of the float64 {self.number:.6g}"
        by = f" by `{shortened(self.read.text, _LONGEST)}` ({self.read.place})" if self.read is not None else ""
        if self.behind is None:
            return f"{bits}{f', read{by}' if by else ''}"
        sure = self.behind.length is not None and self.behind.other is not None
        return f"{bits}, {'' if sure else 'probably '}read{by} {self.behind.words}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self._length(), *self.far.evidence(view, address))

    def _length(self) -> Evidence | None:
        found = self.behind
        if found is None or found.length is None:
            return None
        elements = math.prod(found.array.shape)
        text = f"{found.length} held {elements}, the length of {array_words(found.array)}: its last index is one less"
        return Evidence("index", text, tensor=found.array.expression, register=found.length, value=elements)

    @property
    def _itself(self) -> str | None:
        """Its elements are not recorded: it may have the number, unless floats follow it."""
        name = self.read.passed if self.read is not None else self.behind.array.expression if self.behind else None
        sure = self.behind is not None and self.behind.length is not None and self.behind.other is not None
        if name is None or sure:
            return None
        return (
            f"First see whether `{name}` has {self.far.value} itself: memory of np.empty() that was not filled to its "
            "end, or floats viewed as whole numbers. If not, the index into it was wrong."
        )

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        line, read = line_words(view), self.read
        first = f"{self._itself} " if self._itself is not None else ""
        if read is not None and read.rows is not None:
            low, high = read.rows
            return (
                f"{first}No condition there asks whether {low} < {high}: of a row without elements, {read.place} reads "
                f"an element of {read.array} all the same, one of the next row, or behind the end where no other row "
                f"follows. Handle `if ({low} == {high})` before it, or leave such rows out of what {line} passes."
            )
        if read is not None:
            return (
                f"{first}Check the index that {read.place} reads {read.array} by: it must be at least 0 and less than "
                f"the length, which the function has to be given. The numbers come from what {line} passes."
            )
        what = f"{array_words(self.behind.array)}" if self.behind is not None else "the arrays of whole numbers"
        return (
            f"{first}Let the native function compare each index with the length of {what} before it reads there: "
            f"{line} passes valid arrays, and the number is what lies behind one, or an array of floats that was "
            "passed for one of whole numbers (np.ctypeslib.ndpointer(dtype) in argtypes refuses that)."
        )


def float_index(view: ProcessView) -> FloatIndex | None:
    """None of an index that is no such number or that an integer tensor has, and of arrays of an unfit type.

    Nor where a number that is passed is known to lead out of the array that the index is looked up in: what lies
    behind it has the bits of a float by chance.
    """
    far, crash = far_index(view), view.crash
    if far is None or far.index is None or crash is None or far.scale != _WIDE:
        return None
    number = struct.unpack("<d", (far.value % (1 << 64)).to_bytes(8, "little"))[0]
    if not _LEAST <= abs(number) < _LARGEST or tensor_with(find_operator(view), far.value) is not None:
        return None
    if unfit_memory(view) is not None:
        return None
    held, arrays = data_registers(crash), line_arrays(view)
    into = [item for item in arrays if item.data == held[far.pointer] and item.in_a_row]
    function, passed = _called(view, into[0].expression) if len(into) == 1 else (None, {})
    reads = _reads(view, function, passed, into[0]) if function is not None else []
    read, behind = _behind(view, passed, reads)
    if behind is None and read is None:
        return None
    lookup = looked_up(view)
    if lookup is not None and lookup.wrong:
        return None
    return FloatIndex(far, number, function, into[0] if len(into) == 1 else None, behind, read)


def _called(view: ProcessView, array: str) -> tuple[str | None, dict[int, str]]:
    """The only native call of the line that is passed an array, and the variables that it is passed, by their place."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    calls = calls_on(tree, frame.line) if tree is not None and frame is not None and frame.line is not None else []
    found = []
    for call in calls:
        if not isinstance(call.func, ast.Attribute) or any(isinstance(item, ast.Starred) for item in call.args):
            continue
        passed = {place: [*passed_in([item])] for place, item in enumerate(call.args)}
        names = {place: held[0] for place, held in passed.items() if len(held) == 1}
        if array in names.values():
            found.append((called_name(call), names))
    return found[0] if len(found) == 1 else (None, {})


def _reads(view: ProcessView, function: str, passed: dict[int, str], into: HeldArray) -> list[IndexRead]:
    """By the source of the function, of the parameter that is passed that array."""
    definition = own_definition(view, function)
    if definition is None:
        return []
    names = [declared_name(item) for item in split(definition.parameters)]
    place = next((place for place, name in passed.items() if name == into.expression), None)
    if place is None or place >= len(names):
        return []
    others = {names[at]: name for at, name in passed.items() if at < len(names) and held_array(view, name) is not None}
    return index_reads(definition, names[place], others)


def _behind(
    view: ProcessView, passed: dict[int, str], reads: Sequence[IndexRead]
) -> tuple[IndexRead | None, Behind | None]:
    """The only array of whole numbers behind which it can have read; by the source one that it takes an index from."""
    found = [
        (name, item)
        for name in dict.fromkeys([read.passed for read in reads] or passed.values())
        for array in [held_array(view, name)]
        if array is not None and array.dtype in _WHOLE and array.in_a_row
        for item in _ends(view, array)
    ]
    name, behind = found[0] if len(found) == 1 else (None, None)
    known = [read for read in reads if name is None or read.passed == name]
    return (known[0] if len(known) == 1 else None), behind


def _ends(view: ProcessView, array: HeldArray) -> Iterator[Behind]:
    """What is known of its end: the floats that follow it, and that a register has its length, one its address."""
    crash, elements = view.crash, math.prod(array.shape)
    end, held = array.data + _WIDE * elements, data_registers(crash) if crash is not None else {}
    others = [
        item for item in (crash.arrays if crash is not None else ()) if item.data == end and item.dtype in _FLOATS
    ]
    other = next((item for item in others if item.frame == array.frame), None)
    known = elements > _FEW and array.data in held.values()
    length = next((name for name, value in held.items() if value == elements), None) if known else None
    if other is not None or length is not None:
        yield Behind(array, other, length)
