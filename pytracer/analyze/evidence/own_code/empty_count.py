"""An unsigned count of 0 that the program's own C takes 1 from: `for (size_t t = 0; t < n - 1; t++)`, with no element.

`n - 1` is then 2**64 - 1, and the loop runs on to where memory may not be accessed. By the source of the function that
the line calls, and by what the line passes: the native stack is not needed, which such a loop may have written over.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.own_code.c_text import declared_name, split, without_comments
from pytracer.analyze.evidence.own_code.own_signature import CalledDefinition, called_definition
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

# Of less than 32 bits it is an int by then, and below 0.
_UNSIGNED = Pattern(r"\b(?:unsigned(?!\s+(?:char|short)\b)|size_t|uint(?:32|64)?(?:_t)?|uintptr_t|ulong)\b")
_OF_32_BITS = Pattern(r"\bunsigned(?:\s+int)?\s+\w+$|\buint(?:32)?(?:_t)?\b")
_TESTS = Pattern(r"\b(?:if|while|\w*assert\w*|\w*CHECK\w*)\s*\((?P<test>[^;{]*)")
_TERM = Pattern(r"[-+*/%)]\s*$")  # of a larger sum, or of a cast
_SIGNED = Pattern(
    r"(?:(?<!unsigned )\b(?:int|long|short|ssize_t|ptrdiff_t|int\d+_t)\s+\w+\s*="
    r"|\(\s*[\w ]+\)\s*\(|static_cast<[^>]*>\s*\()\s*$"
)
_QUOTED = 60


class EmptyCount(msgspec.Struct, frozen=True):
    """`place` has `text`, of `name`, for which the line passes `given`, which was `value`."""

    function: str
    place: str
    text: str
    name: str
    given: str
    value: int
    bits: int
    line: str

    @property
    def summary(self) -> str:
        """Behind a colon."""
        passed = f", for which {self.line} passes `{self.given}`" if self.given != self.name else ""
        return (
            f"`{self.name}` is {self.value}{passed}, and `{self.text}` ({self.place}) is then no number below 0, but "
            f"almost 2**{self.bits}"
        )

    @property
    def advice(self) -> str:
        """Where to leave out the case."""
        return (
            f"Leave out the call where `{self.given}` is {self.value}, before {self.line}, or let {self.function}() "
            f"return at once for it: `{self.text}` of an unsigned number wraps around."
        )

    @property
    def evidence(self) -> Evidence:
        """The number."""
        return Evidence(
            "index", f"`{self.given}`, which {self.line} passes for `{self.name}`, was {self.value}", value=self.value
        )


def empty_count(view: ProcessView) -> EmptyCount | None:
    """None where the number is not known, nothing is taken from it, or the function asks for it."""
    called = called_definition(view)
    if called is None:
        return None
    return next(_counts(view, called, PassedArrays(view)), None)


def _counts(view: ProcessView, called: CalledDefinition, arrays: PassedArrays) -> Iterator[EmptyCount]:
    text, parameters = without_comments(called.found.body), split(called.found.parameters)
    names = tuple(map(declared_name, parameters))
    function = called.call.func
    own = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    for place, (name, declared) in enumerate(zip(names, parameters, strict=True)):
        if "*" in declared or "[" in declared or not _UNSIGNED.search(declared):
            continue
        given = arrays.argument(own, names, place)
        value = arrays.number(*given) if given is not None else None
        bits = 32 if _OF_32_BITS.search(declared) else 64
        less = next(_subtractions(text, name, bits), None)
        if given is None or value is None or less is None or not 0 <= value < int(less["less"]):
            continue
        if _is_asked(text, name):
            continue
        line = called.found.line + text.count("\n", 0, less.start())
        yield EmptyCount(
            own,
            f"{called.found.file}:{line}",
            less[0],
            name,
            shortened(ast.unparse(given[0]), _QUOTED),
            value,
            bits,
            line_words(view),
        )


def _subtractions(text: str, name: str, bits: int) -> Iterator[re.Match[str]]:
    """`n - 1` where that is a number of its own, and no signed one.

    An index of 64 bits is one below the first element then, which is near; `n - 1 - i` is of a loop up to `n`.
    """
    for match in re.finditer(rf"(?<![\w.>]){name}\s*-\s*(?P<less>\d+)\b", text[text.find("{") :]):
        start = text.find("{") + match.start()
        before = text[:start]
        if _TERM.search(before) or _SIGNED.search(before):
            continue
        found = re.compile(rf"{name}\s*-\s*(?P<less>\d+)\b").match(text, start)
        is_index = before.rstrip().endswith("[")
        if found is not None and not (is_index and (bits == 64 or text[found.end() :].lstrip().startswith("-"))):
            yield found


def _is_asked(text: str, name: str) -> bool:
    """Whether a test of the function, or a change of the number, may keep it from that."""
    own = rf"(?<![\w.>]){re.escape(name)}\b"
    if any(re.search(own, match["test"]) for match in _TESTS.finditer(text)):
        return True
    return (
        re.search(rf"{own}\s*(?:[-+*/%]?=(?!=)|\+\+|--)|{own}\s*\?|&\s*{own}|{own}\s*[=!<>]=?\s*\d+\s*\?", text)
        is not None
    )
