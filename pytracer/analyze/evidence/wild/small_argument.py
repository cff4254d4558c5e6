"""A tensor that is smaller than another one of the call: a loop over the larger one's size left it."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer._text import size_words
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.own_code.passed import passed
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView

_LEAST_TENSORS = 2


@dataclass(frozen=True)
class SmallArgument(Explanation):
    """The address is `behind` bytes behind `small`; `large`, which the same line passes, is larger than that."""

    verdict_class = "out-of-bounds"
    small: str
    large: str
    behind: int

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {size_words(self.behind)} behind {self.small}, which was passed with {self.large}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return (
            f"Compare the shapes of {self.small} and {self.large}, which {line_words(view)} passes together: a loop "
            "over the larger one left the smaller one. They may be of different batches or layers."
        )


def small_argument(view: ProcessView) -> SmallArgument | None:
    """A tensor that the line passes with a larger one, where a loop over that one's size would reach the address."""
    found, place = passed(view), view.place
    if found is None or place is None or len(found.bases) < _LEAST_TENSORS:
        return None
    live = [
        (storage.nbytes, storage.base, words)
        for base, words in zip(found.bases, found.tensors, strict=True)
        if base and (storage := view.space.live_around(base)) is not None
    ]
    if len(live) < _LEAST_TENSORS:
        return None
    (nbytes, base, small), (most, _, large) = min(live), max(live)
    behind = place.addr - (base + nbytes)
    below = [item for item in live if item[1] + item[0] <= place.addr and place.addr - item[1] < most]
    return (
        SmallArgument(small, large, behind) if len(below) == 1 and below[0][1] == base and 0 <= behind < most else None
    )
