"""A byte of a text that C takes for a letter: `n = n->next[p[i] - 'a']`, with 26 elements and no test of the byte.

Any other byte, such as those of letters beyond ASCII, of digits and of capitals, leads out of the array, and a pointer
is read from what lies beside it. Read as text: only where the function compares the byte with nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, statement_at, without_comments
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value, running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_texts import passed_text
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_OFFSET = r"(?P<byte>[^;=<>&|?]*?)\s*-\s*'(?P<first>[A-Za-z0-9])'"
_INDEX = Pattern(rf"\b(?P<array>[A-Za-z_]\w*)\s*\[\s*{_OFFSET}\s*\]")
_BY_NAME = Pattern(r"\b(?P<array>[A-Za-z_]\w*)\s*\[\s*(?P<name>[A-Za-z_]\w*)\s*\]")
_VALUE = Pattern(rf"^{_OFFSET}$")
_TESTS = Pattern(r"\bis(?:alpha|lower|upper|alnum|digit|ascii)\s*\(|[<>]=?\s*'|'\s*[<>]=?|[<>]=?\s*0x[0-9a-fA-F]{2}\b")
_FREES = Pattern(r"\bfree\s*\(|\bdelete\b")
_UNCLEARED, _CLEARS = Pattern(r"\b(?:malloc|realloc|aligned_alloc)\s*\("), r"\b(?:calloc|memset|bzero|fill|fill_n)\s*\("
_NEAR, _QUOTED = 4, 60


class LetterIndex(msgspec.Struct, frozen=True):
    """`place` takes `text`, an element of `array` with `count` elements (`declared_at`), for bytes from `first` on.

    `given`: the text of the program that it goes through, in words.
    """

    function: str
    place: LineWords
    text: str
    index: str
    array: str
    count: int
    first: str
    declared_at: LineWords
    line: str
    given: str | None

    @property
    def _last(self) -> str:
        return chr(ord(self.first) + self.count - 1)

    @property
    def _range(self) -> str:
        return f"'{self.first}' to '{self._last}'"

    @property
    def summary(self) -> str:
        """Behind a colon."""
        return (
            f"probably `{self.text}` ({self.place}) was taken for a byte that is not {self._range}: `{self.array}` has "
            f"{self.count} elements, and nothing checks `{self.index}`"
        )

    @property
    def advice(self) -> str:
        """Which bytes to leave out, and the check that is missing."""
        given = f"in {self.given}" if self.given is not None else f"in the text that {self.line} passes"
        return (
            f"Look for bytes other than {self._range} {given}: letters beyond ASCII, which UTF-8 has as several bytes, "
            f"capitals, digits or marks. Leave them out or map them before, or let {self.function}() refuse an index "
            f"that is not inside 0..{self.count - 1} (`{self.array}`, {self.declared_at})."
        )

    @property
    def evidence(self) -> Evidence:
        """What the source says."""
        sentence = f"{self.place} indexes `{self.array}` by `{self.index}` without a check"
        return Evidence("source-line", sentence, text=f"{self.array}[{self.index}]")


def letter_index(view: ProcessView) -> LetterIndex | None:
    """At the running line or a few before it; None where the function tests the byte, or the size is not known."""
    frame = running_frame(view)
    source = own_source(frame) if frame is not None else None
    if frame is None or source is None or source[0].line is None:
        return None
    file, text = source[0].file or "", without_comments("\n".join(source[1]))
    lines, number = text.split("\n"), source[0].line
    around = function_around(text, statement_at(lines, number))
    body = text[around.body : closing(text, around.body)] if around is not None else ""
    if around is None or _TESTS.search(body) is not None or _is_freed(view, text):
        return None
    first = max(number - 1 - _NEAR, text.count("\n", 0, around.body) + 1)
    for at in range(number - 1, first - 1, -1):
        for array, byte, letter, shown in _indices(lines[at], body):
            size = _size(text, array) if not _is_unset(text, array) else None
            if size is not None:
                names = re.findall(r"[A-Za-z_]\w*", byte)
                return LetterIndex(
                    around.name,
                    line_in(file, at + 1, None),
                    shortened(shown, _QUOTED),
                    f"{byte} - '{letter}'",
                    array,
                    size[0],
                    letter,
                    line_in(file, size[1], None),
                    line_words(view),
                    passed_text(view, frame, [_origin(body, name) for name in names]),
                )
    return None


def _is_freed(view: ProcessView, text: str) -> bool:
    """Whether the program calls a function of the file that frees memory: what is read may be freed then."""
    places = (match.start() for match in _FREES.finditer(text))
    functions = {around.name for at in places if (around := function_around(text, at)) is not None}
    return next(lines_that_call(view, functions), None) is not None


def _is_unset(text: str, array: str) -> bool:
    """Whether elements may hold what was in the memory before: `malloc(sizeof(Node))`, and nothing clears it."""
    sets = rf"(?<![\w>.-]){array}\b[^;]*\{{|\b{array}\s*\[[^\]]*\]\s*=\s*(?:NULL|nullptr|0)\s*;"
    return _UNCLEARED.search(text) is not None and re.search(rf"{_CLEARS}|{sets}", text) is None


def _indices(line: str, body: str) -> Iterator[tuple[str, str, str, str]]:
    """The arrays of a line that are indexed so: by the expression itself, or by a variable that has it."""
    for match in _INDEX.finditer(line):
        yield match["array"], match["byte"].strip(), match["first"], match[0]
    for match in _BY_NAME.finditer(line):
        value = assigned_value([body], match["name"])
        made = _VALUE.match(value) if value is not None else None
        if made is not None:
            yield match["array"], made["byte"].strip(), made["first"], match[0]


def _size(text: str, array: str) -> tuple[int, int] | None:
    """How many elements its declaration has, and the line of that."""
    declared = [*re.finditer(rf"[\w*]\s+\*?\s*{re.escape(array)}\s*\[\s*(?P<size>\w+)\s*\]\s*[;,={{]", text)]
    if len(declared) != 1:
        return None
    size, line = declared[0]["size"], text.count("\n", 0, declared[0].start("size")) + 1
    if not size.isdigit():
        macro = re.search(rf"(?m)^[ \t]*#[ \t]*define[ \t]+{size}[ \t]+\(?(\d+)\)?[ \t]*$", text)
        constant = re.search(rf"\bconst(?:expr)?\s+(?:\w+\s+)+{size}\s*=\s*(\d+)\s*;", text)
        known = macro or constant
        size = known[1] if known is not None else ""
    return (int(size), line) if size else None


def _origin(body: str, name: str) -> str:
    """`text` of `const char *p = text`."""
    value = assigned_value([body], name)
    return value if value is not None and re.fullmatch(r"[A-Za-z_]\w*", value) else name
