"""The array that the failing line of the program's own C indexes, and what the index is, as the source says.

For arrays that the C itself makes by malloc() and the like: those that Python passes are in `looked_up`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.own_code.c_text import Function, function_around, statement_at, without_comments
from pytracer.analyze.evidence.own_code.lookups import Lookup, has_unseen, lookups
from pytracer.analyze.evidence.own_code.made_memory import MadeMemory, made_memory
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.numbers_of_file import ReadNumbers, WritingLine, numbers_read, writing_line
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_QUOTED = 60


class OwnIndex(msgspec.Struct, frozen=True):
    """`place` (`ops.c:30`), in `function`, indexes `array`, which `made_at` makes with `count` elements.

    `indices`: the index as the line writes it; several where the line has several. `read_at`: the line that reads them
    from `file`; `written`: the line of the program that writes that. `is_compared`: whether the function tests one.
    """

    place: LineWords
    function: str
    array: str
    count: str
    made_at: LineWords
    indices: tuple[str, ...]
    read_at: LineWords | None = None
    file: str | None = None
    written: WritingLine | None = None
    is_compared: bool = False
    is_counted: bool = False  # whether the function asks how many numbers were there to be read

    def summary(self, value: int) -> str:
        """Behind the place in a headline."""
        return (
            f"index {value}, which is {self._which}, leads out of `{self.array}`, which {self.made_at} makes with "
            f"`{self.count}` elements{self._read}"
        )

    @property
    def _read(self) -> str:
        if self.read_at is None:
            return ""
        source = f"`{self.file}`" if self.file is not None else "a file"
        by = f", which {self.written.line} writes" if self.written is not None else ""
        return f"; {self.read_at} reads the index from {source}{by}"

    def advice(self, value: int) -> str:
        """What to change: where the numbers are made, and where they are used."""
        last = f"`{self.count}` - 1"
        check = f"Let {self.function}() refuse what is below 0 or above {last} before {self.place} uses it"
        check += "." if self.is_compared else ": nothing checks it there."
        if self.written is not None:
            return (
                f"Number from 0 to {last} what {self.written.line} (`{self.written.text}`) writes to `{self.file}`: "
                f"{value} was read from there{self._unless}, and is used as an index of `{self.array}`. Keys and ids "
                f"of another kind have to be mapped to 0..N-1 there. {check}"
            )
        of_array = f"`{self.array}` has `{self.count}` elements ({self.made_at}). {check}"
        if self.read_at is None:
            return f"Check where {self._which} comes from: it was {value}, and {of_array}"
        file = f"`{self.file}`" if self.file is not None else "the file"
        read = f"{value} is one of them{self._unless}, and {of_array}"
        return f"Check the numbers in {file} that {self.read_at} reads: {read}"

    @property
    def _unless(self) -> str:
        return "" if self.is_counted else " (unless it has fewer numbers than are read)"

    @property
    def _which(self) -> str:
        return list_words([f"`{item}`" for item in self.indices], conjunction="or")


def own_index(view: ProcessView) -> OwnIndex | None:
    """Of the innermost function of the program's own; None where the line may have used another array or index."""
    frame, found = running_frame(view), lookups(view)
    source = own_source(frame) if frame is not None else None
    if found is None or source is None or source[0].line is None or has_unseen(found.statement):
        return None
    file, number, lines = source[0].file or "", source[0].line, source[1]
    text = without_comments("\n".join(lines))
    place = statement_at(text.split("\n"), number)
    around = function_around(text, place)
    if around is None:
        return None
    used = [item for item in found.found if _may_fail(view, item, text[around.body : place + len(lines[number - 1])])]
    made = made_memory(text, used[0].array, place) if len({item.array for item in used}) == 1 else None
    if made is None or any(item.scaled or item.moved for item in used):
        return None
    return _of(view, file, number, around, text, place, made, used)


def _of(
    view: ProcessView, file: str, number: int, around: Function, text: str, place: int, made: MadeMemory,
    used: list[Lookup],
) -> OwnIndex | None:  # fmt: skip
    """With where the index is read from, if that is the same for all that it may be."""
    indices = tuple(dict.fromkeys(_index(item) for item in used))
    names = [_name(item) for item in used]
    reads = [numbers_read(text, around, place, name) if name is not None else None for name in names]
    one = reads[0] if len(set(reads)) == 1 else None
    return OwnIndex(
        line_in(file, number, None),
        around.name,
        made.name,
        shortened(made.count, _QUOTED),
        line_in(file, made.line, None),
        indices,
        line_in(file, one.line, None) if one is not None else None,
        one.file if one is not None else None,
        _written(view, one),
        any(_is_compared(text[around.body : place], item) for item in indices),
        one is not None and _is_counted(text.split("\n")[one.line - 1]),
    )


def _is_counted(line: str) -> bool:
    """`fscanf(...) != 3`, `(got = fread(...)) < n`."""
    return re.search(r"\b(?:f?scanf|fread|read)\s*\(.*\)\s*(?:[<>]=?|[!=]=)", line) is not None


def _is_compared(before: str, index: str) -> bool:
    own = re.escape(index)
    return re.search(rf"(?<!\w){own}\s*(?:[<>]=?|[=!]=)|(?:[<>]=?|[=!]=)\s*{own}(?!\w)", before) is not None


def _written(view: ProcessView, read: ReadNumbers | None) -> WritingLine | None:
    return writing_line(view, read.file) if read is not None and read.file is not None else None


def _may_fail(view: ProcessView, lookup: Lookup, body: str) -> bool:
    """Whether the access may be that of an element; not of one that a loop counts to, which would fail much earlier."""
    access = view.fault.access if view.fault is not None else None
    if (access == "read" and not lookup.reads) or (access == "write" and not lookup.writes):
        return False
    return _index(lookup) not in set(_counters(body))


def _counters(body: str) -> Iterator[str]:
    return (match["name"] for match in LOOP.finditer(body))


def _index(lookup: Lookup) -> str:
    """`head[i]` of `deg[head[i]]`."""
    return lookup.text[len(lookup.array) :].strip()[1:-1].strip()


def _name(lookup: Lookup) -> str | None:
    """`head` of `deg[head[i]]` and of `k = head[i]; deg[k]`; `k` of `deg[k]`. None of a sum or product."""
    index = _index(lookup)
    if not lookup.by:
        return index if re.fullmatch(r"\w+", index) and not index.isdigit() else None
    return lookup.by[0].array if len(lookup.by) == 1 and index in (lookup.by[0].text, lookup.by[0].variable) else None
