"""An index or count of the program's own native code that its source explains, with the address or registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pytracer.analyze.evidence.own_code.empty_count import empty_count
from pytracer.analyze.evidence.own_code.indexed_array import indexed_array
from pytracer.analyze.evidence.own_code.letter_index import letter_index
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence, VerdictClass


class Found(Protocol):
    """What the source shows."""

    @property
    def summary(self) -> str:
        """What a headline ends with."""

    @property
    def advice(self) -> str:
        """What to change."""

    @property
    def evidence(self) -> Evidence | None:
        """The values and lines that show it."""


@dataclass(frozen=True)
class BySource(Explanation):
    """`sure`: registers or memory have the numbers that the source is read with."""

    verdict_class: ClassVar[VerdictClass] = "out-of-bounds"
    names_source = True
    found: Found
    sure: bool

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return True

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "certain" if self.sure else "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self.found.evidence, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


def by_indexed_array(view: ProcessView) -> BySource | None:
    """An index that leads out of the array that the failing line indexes; sure: registers have both."""
    return _told(indexed_array(view), sure=True)


def by_empty_count(view: ProcessView) -> BySource | None:
    """An address that a loop came to, which counts up to `n - 1` of an unsigned 0."""
    return _told(empty_count(view), sure=False)


def by_letter(view: ProcessView) -> BySource | None:
    """A pointer from beside an array, by a byte of a text that is no letter."""
    return _told(letter_index(view), sure=False)


def _told(found: Found | None, *, sure: bool) -> BySource | None:
    return BySource(found, sure) if found is not None else None
