"""A pointer in a global variable of the program's own library, over which another library of the program wrote its own.

Both define a variable of that name, and the dynamic linker has made them one: see own_code/shared_globals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.shared_globals import SharedGlobal, shared_global
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence


@dataclass(frozen=True)
class OverwrittenGlobal(Explanation):
    """`found`: the variable, and the libraries that have it."""

    found: SharedGlobal

    @property
    def is_explained(self) -> bool:
        """See Explanation; not where the memory of the variable was not kept."""
        return self.found.used is None

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        found = self.found
        return (address, Evidence("library", found.words, path=found.library, nbytes=found.nbytes))

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


def overwritten_global(view: ProcessView) -> OverwrittenGlobal | None:
    """None where the pointer that the program's own library used came from elsewhere."""
    frame = next(iter(own_frames(view)), None)
    instruction, place = view.instruction, view.place
    if frame is None or not is_of_own_image(frame):
        return None
    value = instruction.base_value if instruction is not None else None
    value = value if value is not None else place.addr if place is not None else None
    found = shared_global(view, value, frame) if value else None
    return OverwrittenGlobal(found) if found is not None else None
