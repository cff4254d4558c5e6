"""A number that the failing instruction itself adds to a pointer into the heap: `add dword ptr [rax + rdx*4], 1`.

Base and index of one instruction need not be as far from each other as two registers that may have nothing to do with
one another: the sum is what was accessed. The base lies in memory that may be written; the address does not.
"""

from __future__ import annotations

from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.own_index import own_index
from pytracer.analyze.evidence.wild.far_index import FarIndex
from pytracer.analyze.evidence.wild.unexplained import is_suspicious
from pytracer.analyze.platform.instruction import Instruction, signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash

_LEAST_BYTES = 1 << 20  # a base is often a row of an array, and the index no larger than such a row
_LARGEST_ACCESS_BYTES = 64


def based_index(view: ProcessView) -> FarIndex | None:
    """None where the instruction has no such operands, which of both is the pointer is not known, or in other code.

    What torch's operators and the interpreter use as an index was seldom passed as it is, and libc adds lengths.
    """
    crash, place, instruction = view.crash, view.place, view.instruction
    if crash is None or place is None or instruction is None or instruction.is_lane or instruction.addr is None:
        return None
    if place.kind != "unmapped" or not 0 <= place.addr - instruction.addr < _LARGEST_ACCESS_BYTES:
        return None
    frame = running_frame(view)
    if frame is None or frame is not own_frames(view)[0] or find_operator(view) is not None:
        return None
    found = _operands(crash, instruction)
    if found is None or abs(found.value * found.scale) < _LEAST_BYTES or not found.value:
        return None
    own = own_index(view)
    if (own is None or own.read_at is None) and is_suspicious(view):
        return None
    return found.with_source(own)


def _operands(crash: Crash, instruction: Instruction) -> FarIndex | None:
    """The register that holds a pointer, and the one that holds a number; of two that are not multiplied, by that."""
    base, index = instruction.base_value, instruction.index_value
    if instruction.base is None or instruction.index is None or base is None or index is None:
        return None
    ways = [(instruction.base, base, instruction.index, index)]
    if instruction.scale == 1:
        ways.append((instruction.index, index, instruction.base, base))
    low, high = crash.stack or (0, 0)
    found = [
        FarIndex(name, other, signed(value), instruction.scale, low <= pointer < high)
        for name, pointer, other, value in ways
        if _is_writable(crash, pointer) and mapping_at(crash.mappings, value) is None
    ]
    return found[0] if len(found) == 1 else None


def _is_writable(crash: Crash, addr: int) -> bool:
    mapping = mapping_at(crash.mappings, addr)
    return mapping is not None and mapping.permissions.startswith("rw")
