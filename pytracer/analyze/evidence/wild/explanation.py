"""One reason why an address belongs to nothing known, with the words, the class and the confidence that follow from it.

What is not overridden here holds of an address about which nothing but its value is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from pytracer.analyze.evidence.wild.address import address_confidence
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence, VerdictClass


class Explanation(ABC):
    """`is_sufficient`: what the line passes would explain nothing beside it. `names_source`: see Description."""

    verdict_class: ClassVar[VerdictClass] = "wild-pointer"
    is_sufficient: ClassVar[bool] = True
    names_source: ClassVar[bool] = False

    @property
    def is_index(self) -> bool:
        """Whether an index led out of something, as far as is known."""
        return self.verdict_class == "out-of-bounds"

    @property
    def is_explained(self) -> bool:
        """Whether it says what is wrong by recorded facts; see Description.explained."""
        return False

    def confidence(self, view: ProcessView) -> Confidence:
        """Of the verdict."""
        return address_confidence(view)

    def access(self, view: ProcessView) -> str | None:
        """The access in the headline, where it is another one than through a wild pointer."""
        return None

    @abstractmethod
    def clause(self, view: ProcessView) -> str:
        """What the headline ends with, from its colon on."""

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """What it rests on, in order; `address`: what the address shows by itself."""
        return (address,)

    @abstractmethod
    def advice(self, view: ProcessView) -> str:
        """What to do next."""

    @property
    def missing(self) -> str | None:
        """What was not recorded."""
        return None
