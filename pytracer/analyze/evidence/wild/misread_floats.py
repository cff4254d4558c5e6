"""An index that is computed from floats of another size than the array has: two float32 read as one float64.

By the source of the program's own function, which takes `double *` and makes an index of an element, and by the type of
the array that the line passes for it. ctypes checks no type: the index is any number, and the address with it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.element_uses import leads_to_memory
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.own_code.unfit_memory import UnfitMemory, unfit_arguments
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_FORMATS = {4: "<f", 8: "<d"}
_LARGE = 1 << 24  # of a number that an index is made of
_SMALL = 1 << 20


@dataclass(frozen=True)
class Misread:
    """`parts` of the array's own numbers, from element `place` on, are `number` as the function reads them."""

    place: int
    parts: tuple[float, ...]
    number: float


@dataclass(frozen=True)
class MisreadFloats(Explanation):
    """`unfit`: what the line passes. `read`: such a number in the recorded memory of the array, that is far too large.

    `harmless`: that memory was recorded, and has none.
    """

    verdict_class = "out-of-bounds"
    names_source = True
    unfit: UnfitMemory
    read: Misread | None
    harmless: bool

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return True

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "possible" if self.harmless else "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.unfit.summary}, and makes an index of it"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self._numbers(), address)

    def _numbers(self) -> Evidence | None:
        if self.read is None:
            return None
        parts = " and ".join(f"{item:.6g}" for item in self.read.parts)
        are = f"are {self.read.number:.3g} as one" if len(self.read.parts) > 1 else f"is {self.read.number:.3g} as two"
        element = self.unfit.parameter.element
        return Evidence(
            "index",
            f"element {self.read.place} of `{self.unfit.name}` is read wrong: {parts} {are} {element}",
            tensor=self.unfit.name,
        )

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.unfit.advice(view)


def misread_floats(view: ProcessView) -> MisreadFloats | None:
    """None where all arrays have the type that the function takes, or it makes no index of the one that has not."""
    for unfit in unfit_arguments(view):
        definition = own_definition(view, unfit.function) if unfit.takes_floats else None
        if definition is not None and leads_to_memory(definition.body, unfit.parameter.name):
            numbers = _read(view, unfit)
            large = next((item for item in numbers if not _is_small(item)), None)
            return MisreadFloats(unfit, large, bool(numbers) and large is None)
    return None


def _is_small(item: Misread) -> bool:
    return math.isfinite(item.number) and abs(item.number) < _LARGE


def _read(view: ProcessView, unfit: UnfitMemory) -> list[Misread]:
    """The array's first numbers as the function reads them, as far as their memory was recorded."""
    crash, start = view.crash, unfit.data
    own, taken = unfit.nbytes, unfit.parameter.nbytes
    block = next(
        (item for item in crash.memory if start is not None and item.addr <= start < item.addr + len(item.content)),
        None,
    ) if crash is not None else None  # fmt: skip
    if block is None or start is None or own not in _FORMATS or taken not in _FORMATS:
        return []
    content, step = block.content[start - block.addr :], max(own, taken)
    found = []
    for at in range(0, len(content) - step + 1, step):
        parts = tuple(item[0] for item in struct.iter_unpack(_FORMATS[own], content[at : at + step]))
        number = max(
            (item[0] for item in struct.iter_unpack(_FORMATS[taken], content[at : at + step])),
            key=lambda item: abs(item) if math.isfinite(item) else math.inf,
        )
        if all(math.isfinite(item) and abs(item) < _SMALL for item in parts):
            found.append(Misread(at // own, parts, number))
    return found
