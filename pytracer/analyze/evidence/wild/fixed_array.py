"""An index that led out of an array of a fixed size in a structure of the program's own C, by its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.own_code.struct_arrays import StructArray, struct_array
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class FixedArray(Explanation):
    """`found`: the array and what its index is; `held`: registers or memory have both its address and the index."""

    verdict_class = "out-of-bounds"
    names_source = True
    found: StructArray
    held: bool

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return True

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "certain" if self.held else "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self.found.evidence, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


def fixed_array(view: ProcessView) -> FixedArray | None:
    """None where the address of the structure, or its declaration, is not known."""
    found = struct_array(view)
    held = data_registers(view.crash).values() if view.crash is not None else ()
    if found is None:
        return None
    counted = {found.index % (1 << bits) for bits in (32, 64)} | {(found.index + 1) % (1 << bits) for bits in (32, 64)}
    return FixedArray(found, found.base in held and (found.known or not counted.isdisjoint(held)))
