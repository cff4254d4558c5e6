"""An explanation of an exception by lines of the program: what its finders return."""

from __future__ import annotations

import msgspec

from pytracer.analyze.behind import Behind
from pytracer.analyze.naming import LineWords


class LineReason(msgspec.Struct, frozen=True):
    """`subject`: for the headline. `lines`: those of the program that it is about, as far as they are known."""

    subject: str
    advice: str
    lines: tuple[LineWords, ...]

    @property
    def behind(self) -> Behind:
        """These lines."""
        return Behind.of([], *self.lines)
