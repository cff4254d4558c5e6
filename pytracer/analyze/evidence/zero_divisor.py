"""A variable that holds 0 and that the failing line passes to code that divides by zero; the line that made it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytracer._text import shortened
from pytracer.analyze.evidence.name_origins import follow
from pytracer.analyze.evidence.passed import passed
from pytracer.analyze.evidence.variables import program_frames
from pytracer.analyze.evidence.where_made import place_of
from pytracer.analyze.view import ProcessView

_ROUNDS = re.compile(r"//|\bint\(|\bfloor\(|>>|\bround\(")
_QUOTED = 80


@dataclass(frozen=True)
class ZeroDivisor:
    """The only variable of the line that is 0. `origin`: `` line 30 (`self.oov = ...`) ``."""

    name: str
    line: int
    origin: str | None
    rounds: bool

    @property
    def advice(self) -> str:
        """Where to keep it from being 0."""
        if self.origin is None:
            return (
                f"Keep `{self.name}` from being 0 where line {self.line} passes it: the function divides by a number."
            )
        rounded = ", which rounds down: max(1, ...) keeps it positive" if self.rounds else ""
        return f"Keep `{self.name}` from being 0, which line {self.line} passes: it comes from {self.origin}{rounded}."


def zero_divisor(view: ProcessView) -> ZeroDivisor | None:
    """None where no variable that the line passes is 0, or more than one is."""
    given, frames = passed(view), program_frames(view)
    if given is None or len(given.zeros) != 1 or not frames:
        return None
    name = given.zeros[0]
    found = follow(view.process.snapshot, frames, name, None)
    if found is None:
        return ZeroDivisor(name, given.line, None, rounds=False)
    place = place_of(view, found.frame.file, found.frame.line)
    origin = f"{place} (`{shortened(found.text, _QUOTED)}`)"
    return ZeroDivisor(name, given.line, origin, bool(_ROUNDS.search(found.text)))
