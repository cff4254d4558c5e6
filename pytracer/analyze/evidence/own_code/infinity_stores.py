"""The line of the program's own C that stores an infinity from an index on that may be negative: a mask.

Where malloc() notes a size stand two float32 of minus infinity: `for (c = last + 1; c < w; c++) row[c] = -INFINITY;`
writes these, and before the start of its block where `last + 1` is negative.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, without_comments
from pytracer.analyze.evidence.own_code.call_origins import native_calls_on
from pytracer.analyze.evidence.own_code.native_bounds import LOOP
from pytracer.analyze.evidence.own_code.own_allocations import sources_of
from pytracer.analyze.evidence.own_code.own_libraries import own_libraries
from pytracer.analyze.evidence.own_code.short_allocations import statement_end
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_INFINITY = r"(?:INFINITY|HUGE_VALF?|(?:std::)?numeric_limits<\s*(?:float|double)\s*>::infinity\(\))"
_STORE = r"(?P<name>\w+)\s*\[\s*{}\s*\]\s*=\s*(?P<minus>-?)\s*" + _INFINITY
_WORDS = {0xFF800000: "-", 0x7F800000: ""}
_WHOLE = {0xFFF0000000000000: "-", 0x7FF0000000000000: ""}
_CLAMPED = Pattern(r"\b(?:f?max|MAX|std::max)\b|\?")
_QUOTED = 70


class InfinityStore(msgspec.Struct, frozen=True):
    """`text` at `line` of the source of `function` stores what stands there, from `start` on; `value` is the start's
    variable, where the source says what that is.
    """

    function: str
    library: str
    called: LineWords
    line: LineWords
    text: str
    start: str
    variable: str | None
    value: str | None
    sign: str

    @property
    def summary(self) -> str:
        """Behind `the first suspect is`."""
        return (
            f"{self.function}() of {self.library} ({self.called}), whose {self.line} "
            f"(`{shortened(self.text, _QUOTED)}`) stores {self.sign}inf, as stands there, from `{self.start}` on"
        )

    @property
    def advice(self) -> str:
        """What to change."""
        where = f", where `{self.variable}` is `{self.value}`" if self.value is not None else ""
        return (
            f"First suspect is {self.line} (`{shortened(self.text, _QUOTED)}`) in {self.function}() of {self.library}, "
            f"which {self.called} calls: what was overwritten holds {self.sign}inf, and that line stores "
            f"{self.sign}inf from `{self.start}` on{where}. Where that is negative, it writes before the start of its "
            "block: begin at 0 at least."
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The call: the C may be a string, of which all lines are one statement."""
        return ((self.called.file, self.called.line),) if self.called.line is not None else ()


def infinity_store(view: ProcessView, word: int) -> InfinityStore | None:
    """Of the native call that the innermost line runs; None where the word is none, or no or several lines store it."""
    sign, libraries = _sign(word), own_libraries(view)
    spot = Slice(view.process.snapshot, program_frames(view)).spot(0) if sign is not None else None
    if sign is None or libraries is None or spot is None:
        return None
    calls = native_calls_on(view, spot)
    inner = {id(part) for item in calls for given in passed_values(item) for part in nodes_of(given)}
    calls = [item for item in calls if id(item) not in inner]
    found = dict[tuple[str | None, int | None], InfinityStore]()
    for text, place in sources_of(view, libraries) if len(calls) == 1 else ():
        if found:
            break  # the file that the program makes of its own string has the same line
        for store in stores(text, sign):
            at = place(store.line)
            if at is not None:
                library = libraries.names[0] if len(libraries.names) == 1 else "the program's own library"
                found[(at.file, at.line)] = InfinityStore(
                    store.function,
                    library,
                    place_of(view, spot.file, calls[0].lineno),
                    at,
                    text.splitlines()[store.line - 1].strip(),
                    store.start,
                    store.variable,
                    store.value,
                    sign,
                )
    return next(iter(found.values())) if len(found) == 1 else None


class Store(msgspec.Struct, frozen=True):
    """In line `line` of a source, from 1, of a function; `value`: of the only variable of `start`."""

    function: str
    line: int
    start: str
    variable: str | None
    value: str | None


def stores(source: str, sign: str) -> Iterator[Store]:
    """Loops that store an infinity of that sign by their own counter, and begin at a difference."""
    text = without_comments(source)
    for loop in LOOP.finditer(text):
        head = closing(text, text.index("(", loop.start()))
        function = function_around(text, loop.start())
        if head is None or function is None:
            continue
        body = text[head + 1 : statement_end(text, head + 1)]
        store = re.search(_STORE.format(re.escape(loop["name"])), body)
        if store is None or store["minus"] != sign or re.search(rf"\bif\s*\([^;]*{re.escape(loop['name'])}", body):
            continue
        start = " ".join(loop["start"].split())
        variable, value = _difference(text[function.body : loop.start()], start)
        if value is not None:
            own = variable if variable != start or value != start else None
            place = text.count("\n", 0, head + 1 + store.start()) + 1
            yield Store(function.name, place, start, own, value if own is not None else None)


def _difference(before: str, start: str) -> tuple[str | None, str | None]:
    """What may be negative: the start itself, or its only variable, as the last assignment says, and nothing clamps."""
    if _CLAMPED.search(start):
        return None, None
    if re.search(r"\w\s*-\s*\w", start):
        return start, start
    names = re.findall(r"[A-Za-z_]\w*", start)
    if len(names) != 1 or not re.fullmatch(r"\w+(?:\s*\+\s*\d+)?", start):
        return None, None
    given = [*re.finditer(rf"\b{names[0]}\s*=(?!=)\s*(?P<value>[^;,]*)", before)]
    value = " ".join(given[-1]["value"].split()) if given else ""
    tested = given and re.search(rf"\bif\s*\([^;{{}}]*\b{names[0]}\b", before[given[-1].end() :])
    if _CLAMPED.search(value) or tested or not re.search(r"[\w)]\s*-\s*\w", value):
        return None, None
    return names[0], value


def _sign(word: int) -> str | None:
    """Of the infinity that eight bytes hold, as float32 in both halves or as float64; None where they hold none."""
    halves = {_WORDS.get(word & 0xFFFFFFFF), _WORDS.get(word >> 32)}
    return _WHOLE.get(word) if word in _WHOLE else halves.pop() if len(halves) == 1 else None
