"""A number far too large for an array that is no tensor: a pointer into the stack or the heap + size * a register."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.address_space.referrers import STACK_POINTERS, STATE_REGISTERS
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView

_SCALES = (2, 4, 8, 16)
_LEAST_BYTES = 1 << 30  # no two numbers in registers happen to give the address exactly, and so far away
_CODE_POINTERS = ("rip", "pc")


@dataclass(frozen=True)
class FarIndex:
    """The address is what `pointer` held + `scale` * `value`, which `index` held; `stack`: of this thread's stack."""

    pointer: str
    index: str
    value: int
    scale: int
    stack: bool


def far_index(view: ProcessView) -> FarIndex | None:
    """The one way in which registers give the fault address; None when there is none, or more than one value fits."""
    crash, place = view.crash, view.place
    if crash is None or place is None:
        return None
    left_out = (*STATE_REGISTERS, *STACK_POINTERS, *_CODE_POINTERS)
    held = {name: value for name, value in crash.registers.items() if name.lower() not in left_out}
    mapped = {name: mapping for name, value in held.items() if (mapping := mapping_at(crash.mappings, value))}
    found = {}
    for pointer, mapping in mapped.items():
        if not mapping.permissions.startswith("rw"):
            continue
        for index in held.keys() - mapped.keys():
            value = signed(held[index])
            for scale in _SCALES:
                if abs(scale * value) < _LEAST_BYTES or (held[pointer] + scale * value - place.addr) % (1 << 64):
                    continue
                low, high = crash.stack or (0, 0)
                found[value] = FarIndex(pointer, index, value, scale, low <= held[pointer] < high)
    return next(iter(found.values())) if len(found) == 1 else None
