"""A divisor of C that counts what a loop of the same function kept: `if (!seen[j]) cand[k++] = j;`, for no `j`."""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.c_text import closing
from pytracer.analyze.evidence.own_code.c_values import Term
from pytracer.analyze.evidence.own_code.short_allocations import statement_end

_NAME = Pattern(r"^[A-Za-z_]\w*$")
_IF, _QUOTED = Pattern(r"\bif\s*\("), 60


class CountedNone(msgspec.Struct, frozen=True):
    """`name` is 0 at first, and only `place` adds to it, where `test` holds; None where that is in no `if`."""

    name: str
    place: str
    text: str
    test: str | None

    @property
    def words(self) -> str:
        """`` : `k` counts the rounds in which `!seen[j]` holds (ops.c:24), and there was none ``."""
        which = f"in which `{self.test}` holds" if self.test is not None else "of a loop"
        return f": `{self.name}` counts the rounds {which} ({self.place}), and there was none"

    @property
    def what(self) -> str:
        """Of the advice: what to look for in the data."""
        held = f", as `{self.test}` holds for none" if self.test is not None else ""
        return f"nothing is left that {self.place} (`{self.text}`) could count{held}"


def counted_none(term: Term, file: str) -> CountedNone | None:
    """None where anything else may set it.

    Args:
        term: What the divisor is in the end: a variable of the function.
        file: The name of the source.
    """
    name, text = term.text.strip(), term.body.text
    if not _NAME.match(name) or name in term.body.parameters:
        return None
    own = rf"(?<![\w.>]){name}\b"
    sets = re.findall(rf"{own}\s*=(?!=)\s*([^;,]*)", text)
    adds = [*re.finditer(rf"{own}\s*(?:\+\+|\+=\s*1\b)|\+\+\s*{own}", text)]
    others = re.search(rf"{own}\s*(?:--|[-*/%&|^]=|\+=(?!\s*1\b))|--\s*{own}|(?<!&)&\s*{own}", text)
    if not sets or {item.strip() for item in sets} != {"0"} or len(adds) != 1 or others is not None:
        return None
    at = adds[0].start()
    line = term.body.file.count("\n", 0, term.body.function.body + 1 + at) + 1
    shown = term.body.file.split("\n")[line - 1].strip()
    return CountedNone(name, f"{file}:{line}", shortened(shown, _QUOTED), _test(text, at))


def _test(text: str, place: int) -> str | None:
    """Of the innermost `if` around a place."""
    for match in reversed([*_IF.finditer(text, 0, place)]):
        end = closing(text, match.end() - 1)
        if end is not None and end < place <= statement_end(text, end + 1):
            return shortened(" ".join(text[match.end() : end].split()), _QUOTED)
    return None
