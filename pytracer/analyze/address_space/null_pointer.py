"""Was the pointer null? The one question that two rules answer in opposite ways."""

from __future__ import annotations

from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.evidence.heap.heap import heap_damage
from pytracer.analyze.evidence.known_crashes import known_crash
from pytracer.analyze.evidence.lifetime.variables import program_frames, tensors_without_memory
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.operators.operator import find_operator, made_empty, without_memory
from pytracer.analyze.evidence.own_code.ctypes_call import is_known_number
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import AlsoCrashed
from pytracer.report.job import Confidence

POINTER_ALIGNMENT = 4
_SAME_LOOP_BYTES = 4096  # between the instructions of two threads in one parallel region
_LARGEST_ACCESS_BYTES = 64
_FARTHEST_BYTES = 1 << 32  # a worker's part of a tensor without memory begins below
_BELOW_NULL = (1 << 64) - NEAR_NULL_BYTES


def is_below_null(view: ProcessView) -> bool:
    """Whether the address is a small negative number: null - 8, or no address at all (an error code)."""
    return view.place is not None and view.place.addr >= _BELOW_NULL


def _null_below(view: ProcessView) -> Confidence | None:
    """How sure it is that null was indexed with -1, where the address is a small negative number.

    The register shows it, or the operator or the line has a tensor without memory, such as one of 0 rows.
    """
    instruction, operator = view.instruction, find_operator(view)
    if instruction is not None and instruction.addr is not None and instruction.base_value == 0:
        return "certain"
    return "likely" if without_memory(operator) or made_empty(operator) or _passes_empty(view) else None


def _passes_empty(view: ProcessView) -> bool:
    """Whether a variable that the program's innermost line names has a tensor of 0 elements."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return False
    names = names_of_line(tree, frame.line)
    return any(not item.elements and item.expression in names for item in tensors_without_memory(view))


def null_sibling(view: ProcessView) -> AlsoCrashed | None:
    """Another thread of the same parallel region that was refused at null, or close to it, at the same moment.

    One whose part of a tensor begins before this one's, so before the address of this one.
    """
    crash = view.crash
    if crash is None:
        return None
    near = (item for item in crash.also_crashed if abs(item.pc - crash.pc) < _SAME_LOOP_BYTES)
    parts = (item for item in near if item.code > 0 and item.fault_addr < NEAR_NULL_BYTES)
    place = view.place
    return next((item for item in parts if place is None or item.fault_addr < place.addr), None)


def _is_stepped_null(view: ProcessView) -> bool:
    """Whether a loop over a text went one step before null, as libc's strtod() does: null - 1, read at + 1."""
    place, instruction = view.place, view.instruction
    if place is None or place.addr or instruction is None or instruction.base_value is None:
        return False
    return instruction.index is None and instruction.base_value >= (1 << 64) - _LARGEST_ACCESS_BYTES


def has_constant_address(view: ProcessView) -> bool:
    """Whether the address is a constant in the instruction: the compiler knew what the access would meet."""
    place, instruction = view.place, view.instruction
    if place is None or instruction is None or instruction.addr != place.addr:
        return False
    return instruction.base is None and instruction.index is None


def _is_null_indexed(view: ProcessView) -> bool:
    """Whether null was indexed. A register that the instruction multiplies is no pointer, so the other one is."""
    place, instruction = view.place, view.instruction
    if place is None or instruction is None or instruction.addr is None or instruction.scale == 1:
        return False
    is_address = 0 <= place.addr - instruction.addr < _LARGEST_ACCESS_BYTES
    return is_address and instruction.base is not None and instruction.base_value == 0 and bool(instruction.index_value)


def _is_multiple_of_a_register(view: ProcessView) -> bool:
    """Whether null + scale * index is what a compiler computed before the access: both are still in registers."""
    place, crash, instruction = view.place, view.crash, view.instruction
    if place is None or crash is None or instruction is None or instruction.index is not None:
        return False
    if not NEAR_NULL_BYTES <= place.addr < _FARTHEST_BYTES or instruction.base_value != place.addr:
        return False
    values = {value for name, value in crash.registers.items() if name not in STATE_REGISTERS}
    return 0 in values and any(place.addr % scale == 0 and place.addr // scale in values for scale in (2, 4, 8))


def null_confidence(view: ProcessView) -> Confidence | None:
    """How sure it is that the base pointer was null; None when it was not."""
    place, instruction, crash = view.place, view.instruction, view.crash
    if place is None or crash is None:
        return None
    if place.kind == "unmapped" and place.addr < _FARTHEST_BYTES and null_sibling(view) is not None:
        return "likely"  # null + what this worker was to begin with
    if is_below_null(view) and (below := _null_below(view)) is not None:
        return below
    if place.kind in ("unmapped", "non-canonical") and _is_null_indexed(view):
        return "certain"
    if place.kind == "unmapped" and _is_multiple_of_a_register(view):
        return "likely"
    if place.kind not in ("null", "near-null"):
        return None
    known = known_crash(view)
    if (known is not None and "null-dereference" not in known.classes) or heap_damage(view) is not None:
        return None
    if place.addr == crash.pc:
        jump = wild_jump(view)
        if place.addr or (jump is not None and jump.how == "return"):
            return None  # a number: nobody adds to the address of a function
        return "certain"
    if instruction is not None and (instruction.base is not None or instruction.index is not None):
        base = instruction.base_value if instruction.base is not None else 0
        if base == 0:
            return "certain"
        if base is None or base == place.addr == 0 or _is_stepped_null(view) or null_sibling(view) is not None:
            return "likely"
        aligned = base % POINTER_ALIGNMENT == 0 and instruction.addr == place.addr
        return "possible" if aligned and not is_known_number(view) else None
    if has_constant_address(view):
        return "likely"
    if place.kind == "null":
        return "likely"
    return "possible" if place.addr % POINTER_ALIGNMENT == 0 and 0 in crash.registers.values() else None
