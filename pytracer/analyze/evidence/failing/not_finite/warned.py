"""Lines of the program of which Python had warned, before the exception, that their numbers are not finite.

What a warning is about need not be what the exception is about: it is the line to look at first, and no proof.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.earlier_warnings import warning_words
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.naming import LineWords

# torch 2.13, aten/src/ATen/native/ReduceOps.cpp; numpy 2.4, numpy/_core/src/umath/extobj.c, _methods.py, nanfunctions
_OF_NUMBERS = Pattern(
    r"degrees of freedom (?:is )?<= 0|(?:invalid value|divide by zero|overflow) encountered"
    r"|[Mm]ean of empty slice|All-NaN (?:slice|axis)"
)
_MOST = 2


class Warned(msgspec.Struct, frozen=True):
    """`says`: the first sentence of the warning."""

    place: LineWords
    file: str
    line: int
    says: str

    @property
    def words(self) -> str:
        """`line 73 had warned before: "std(): degrees of freedom is <= 0"`."""
        return f'{self.place} had warned before: "{self.says}"'


class WarnedHazard(msgspec.Struct, frozen=True):
    """An expression that can make it, at a line that had warned."""

    hazard: Hazard
    warned: Warned

    @property
    def clause(self) -> str:
        """`line 3, which had warned before ("divide by zero encountered in log"), takes the log of ...`."""
        return f'{self.warned.place}, which had warned before ("{self.warned.says}"), {self.hazard.says}'


def warned(at: FailingLine) -> list[Warned]:
    """The last ones of the program's own files, none where there are many."""
    found = [
        (item.file, item.line, warning_words(item.message))
        for item in at.exception.warnings or ()
        if item.file and item.line and item.message and _OF_NUMBERS.search(item.message)
        if not is_library_file(item.file)
    ]
    last = {(file, line): says for file, line, says in found}
    return [Warned(at.in_file(*key), *key, says) for key, says in last.items()] if len(last) <= _MOST else []


def warned_hazard(at: FailingLine, found: Sequence[Hazard]) -> WarnedHazard | None:
    """The only one of several expressions whose line has warned."""
    pairs = [WarnedHazard(item, of) for item in found for of in warned(at) if _is_at(item, of.file, of.line)]
    return pairs[0] if len(pairs) == 1 and len(found) > 1 else None


def with_warned(at: FailingLine, found: tuple[str, str] | None) -> tuple[str, str] | None:
    """The subject and the advice, with what had warned at a line that they do not name."""
    subject, advice = found if found is not None else ("", "")
    new = [item for item in warned(at) if f"{item.place}" not in f"{subject} {advice}"]
    if not new:
        return found
    words = "; ".join(item.words for item in new)
    look = f"Look first at {' and '.join(str(item.place) for item in new)}, of which Python had warned"
    look = f"{look}: torch.isfinite() of what it makes." if found is None else f"{look}."
    return f"{subject}; {words}" if subject else words, f"{look} {advice}".rstrip()


def _is_at(item: Hazard, file: str, line: int) -> bool:
    statement = statement_at(item.spot.tree, item.line)
    lines = range(statement.lineno, (statement.end_lineno or 0) + 1) if statement is not None else range(0)
    return item.spot.file == file and (line == item.line or line in lines)
