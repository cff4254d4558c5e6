"""A variable of C into which PyArg_ParseTuple() stores more than it has room for: `bool clip` by the unit "p".

That writes an int, so that three bytes beside the variable are overwritten: of a pointer, its lower ones. The pointer
then leads elsewhere, and what was passed from Python is not at fault. By the source of the function that died.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, statement_at, without_comments
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.parse_format import Parse, Stored, Variable, locals_of, parses
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_MOST_FRAMES, _MOST = 4, 2


class ParsedArgument(msgspec.Struct, frozen=True):
    """`function` stores `stored` into `variable`, which has less room; `beside`: pointers that the failing line uses.

    `declared` and `parsed`: the lines of C.
    """

    variable: Variable
    stored: Stored
    function: str
    declared: LineWords
    parsed: LineWords
    beside: tuple[str, ...]
    line: str

    @property
    def _sizes(self) -> str:
        return f"{self.stored.what} of {self.stored.nbytes} bytes"

    @property
    def _room(self) -> str:
        nbytes = self.variable.nbytes
        article = "an" if self.variable.type[0] in "aeiou" else "a"
        return f"{article} {self.variable.type} of {nbytes} byte{'s' if nbytes > 1 else ''}"

    @property
    def summary(self) -> str:
        """What a headline ends with."""
        names = list_words([f"`{item}`" for item in self.beside], _MOST)
        return (
            f'"{self.stored.unit}" of {self.function}() ({self.parsed}) stores {self._sizes} into '
            f"`{self.variable.name}`, {self._room}: what lies beside it is overwritten, most likely {names}"
        )

    @property
    def advice(self) -> str:
        """What to declare."""
        kind = self.stored.what.partition(" ")[2]
        kind = "PyObject *" if kind == "pointer" else kind
        return (
            f"Declare `{self.variable.name}` as {kind} ({self.declared}): that is what the unit "
            f'"{self.stored.unit}" of {self.function}() stores. The bytes behind {self._room} are those of another '
            f"variable, such as the pointer that the failing line goes through. What {self.line} passes need not be "
            "wrong."
        )

    @property
    def evidence(self) -> Evidence:
        """The two lines of C."""
        return Evidence(
            "source-line",
            f"{self.declared} declares `{self.variable.name}` as {self.variable.type}; {self.parsed} passes its "
            f'address for the unit "{self.stored.unit}"',
            function=self.function,
        )


def parsed_argument(view: ProcessView) -> ParsedArgument | None:
    """Of the innermost own function that parses arguments; None where all fit, or its line uses no other pointer."""
    for frame in filter(is_of_own_image, own_frames(view)[:_MOST_FRAMES]):
        for line, lines in own_sources(frame):
            text, number = without_comments("\n".join(lines)), line.line or 0
            place = statement_at(text.split("\n"), number)
            around = function_around(text, place)
            calls = [*parses(text, around, place)] if around is not None else []
            if around is None or not calls:
                continue
            found = next(filter(None, (_too_large(item, locals_of(text, around, item.at)) for item in calls)), None)
            if found is None:
                return None
            stored, variable, call = found
            known = locals_of(text, around, place)
            used = set(re.findall(r"(?<![\w.>])[A-Za-z_]\w*", lines[number - 1]))
            pointers = tuple(
                name
                for name, item in known.items()
                if name in used and item.is_pointer and _is_overrun(text, item, found, place)
            )
            if not pointers or variable.name in pointers:
                return None
            file = line.file or ""
            return ParsedArgument(
                variable,
                stored,
                call.function,
                line_in(file, _line(text, variable.at), None),
                line_in(file, _line(text, call.at), None),
                pointers,
                line_words(view),
            )
    return None


def _too_large(call: Parse, known: dict[str, Variable]) -> tuple[Stored, Variable, Parse] | None:
    for item in call.stored:
        variable = known.get(item.variable)
        if variable is not None and 0 < variable.nbytes < item.nbytes:
            return item, variable, call
    return None


def _is_overrun(text: str, pointer: Variable, found: tuple[Stored, Variable, Parse], place: int) -> bool:
    """Whether a pointer had its value when the call stored too much, and got no other one up to a place."""
    stored, _, call = found
    units = [item.variable for item in call.stored]
    if pointer.at > call.at or pointer.name in units[units.index(stored.variable) :]:
        return False
    end = closing(text, text.index("(", call.at))
    own = re.escape(pointer.name)
    null = re.search(rf"\b{own}\s*=\s*(?:NULL|nullptr|0)\b", text[pointer.at : call.at])
    if null is not None and (pointer.name not in units or "|" in text[call.at : end]):
        return False  # null because it was not passed, or never set
    return end is not None and not re.search(rf"(?<![\w.>]){own}\s*=(?!=)|&\s*{own}\b(?!\s*(?:\[|->))", text[end:place])


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
