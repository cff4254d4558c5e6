"""What a kind of failure at a line of the program is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine


class Kind(NamedTuple):
    """One kind of failure.

    `words`: what is wrong at the line and what to do, in a sentence or two; None where it is another kind.
    `subjects`: the same in a few words, for the headline; asked where `words` spoke, the first that speaks is told.
    `behind`: the values and lines that it is about. `together`: whether it takes several workers at once.
    """

    words: Callable[[FailingLine], str | None]
    subjects: tuple[Callable[[FailingLine], str | None], ...] = ()
    behind: Callable[[FailingLine], Behind | None] | None = None
    together: bool = False
