"""The program's own C that maps more of a file than it knows the file to have: `mmap(0, head.rows * dim * 4, ...)`."""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    closing,
    declared_name,
    function_around,
    split,
    without_comments,
)
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_MAPS = Pattern(r"\bmmap(?:64)?\s*\(")
_MEASURES = Pattern(
    r"\bst_size\b|\blseek(?:64)?\s*\(|\bftello?\s*\(|\btellg\s*\(|\bstatx?\s*\("
    r"|\b(?:f|posix_f)(?:truncate|allocate)(?:64)?\s*\("
    # and a function of another file that is named so
    r"|(?<![.>])\b(?!sizeof|size_t)(?:\w*_)?(?:size|length|len|bytes)(?:_of|_\w+)?\s*\("
)
_READS = "open(?:at|64)?|p?read(?:64|v)?|mmap(?:64)?|close|if|while|switch|posix_fadvise|madvise|flock"
_LENGTH, _FILE, _QUOTED = 1, 4, 60


class NativeMap(msgspec.Struct, frozen=True):
    """`place`, in `function`, maps `length` bytes."""

    place: LineWords
    function: str
    length: str

    def advice(self, mapped: int, held: int) -> str:
        """The comparison that is missing. `mapped` and `held`: how many bytes."""
        return (
            f"{self.place} maps `{self.length}` bytes, here up to byte {mapped}, and nothing in {self.function}() asks "
            f"how long the file is (fstat()), which held {held}: it may never have been longer, as after a download, a "
            f"copy or a writer that did not finish. Let {self.function}() refuse such a file, and make it again."
        )


def _is_given(around: Function, length: str) -> bool:
    """Whether a part of a length is a parameter by itself: `n`, not `head->rows`."""
    return any(
        re.search(rf"(?<![\w.>]){re.escape(name)}\b(?!\s*(?:->|\[|\.))", length)
        for name in map(declared_name, around.parameters)
        if name
    )


def _is_shown(body: str, file: str) -> bool:
    """Whether another function is given the file, such as `has_rows(fd)`, which may ask for its length."""
    given = rf"\b(?!(?:{_READS})\b)\w+\s*\([^;(){{}}]*(?<![\w.>]){re.escape(file)}\b[^;(){{}}]*\)"
    return re.search(given, body) is not None


def native_map(view: ProcessView) -> NativeMap | None:
    """The only call of mmap() in the source of the function that died; None where that measures the file."""
    frame = running_frame(view)
    source = own_source(frame) if frame is not None else None
    if source is None:
        return None
    text = without_comments("\n".join(source[1]))
    calls = [*_MAPS.finditer(text)]
    around, last = (
        (function_around(text, calls[0].start()), closing(text, calls[0].end() - 1)) if calls else (None, None)
    )
    if len(calls) != 1 or around is None or last is None or _MEASURES.search(text) is not None:
        return None
    given = split(text[calls[0].end() : last])
    if len(given) <= _LENGTH:
        return None
    line = text.count("\n", 0, calls[0].start()) + 1
    if _is_given(around, given[_LENGTH]):
        return None  # by a caller, who may have asked
    if len(given) > _FILE and _is_shown(text[around.body : closing(text, around.body)], given[_FILE]):
        return None
    length = shortened(re.sub(r"\s+", " ", given[_LENGTH]).strip(), _QUOTED)
    return NativeMap(line_in(source[0].file, line, None), around.name, length)
