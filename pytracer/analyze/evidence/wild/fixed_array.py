"""An index that led out of an array of a fixed size in a structure of the program's own C, by its source."""

from __future__ import annotations

from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.own_code.overrun_fields import overrun_field
from pytracer.analyze.evidence.own_code.struct_arrays import struct_array
from pytracer.analyze.evidence.wild.by_source import BySource
from pytracer.analyze.view import ProcessView


def fixed_array(view: ProcessView) -> BySource | None:
    """None where the address of the structure, or its declaration, is not known.

    Sure where a register has that address, and registers or memory have the index, too.
    """
    found = struct_array(view)
    held = data_registers(view.crash).values() if view.crash is not None else ()
    if found is None:
        return None
    counted = {found.index % (1 << bits) for bits in (32, 64)} | {(found.index + 1) % (1 << bits) for bits in (32, 64)}
    return BySource(found, found.base in held and (found.known or not counted.isdisjoint(held)))


def overrun_pointer(view: ProcessView) -> BySource | None:
    """A pointer behind such an array in the same structure, which holds the array's kind of numbers."""
    found = overrun_field(view)
    return BySource(found, sure=False) if found is not None else None
