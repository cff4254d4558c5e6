"""A null pointer that the program's own C keeps: `r->f = fopen(path, "rb")`, of which nothing asks whether it is there.

The call that sets it may give null: a file that cannot be opened, memory that is not to be had. It is then passed to a
function of libc, or gone through, maybe by another function of the file. Read as text: only where one call sets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    calls_of,
    closing,
    defined,
    function_around,
    split,
    statement_span,
    without_comments,
)
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.numbers_of_file import numbers_read
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_OPENERS = ("fopen", "fdopen", "popen", "opendir", "dlopen", "gzopen", "freopen")
_ALLOCATORS = ("malloc", "calloc", "realloc", "aligned_alloc", "strdup")
_WRITTEN: Mapping[str, int] = {
    "fread": 0, "fgets": 0, "memcpy": 0, "memmove": 0, "memset": 0, "strcpy": 0, "strcat": 0, "strncpy": 0,
}  # fmt: skip
_READ: Mapping[str, int] = {
    "fread": 3, "fgets": 2, "fgetc": 0, "getc": 0, "getline": 2, "fscanf": 0, "fseek": 0, "fseeko": 0, "ftell": 0,
    "rewind": 0, "feof": 0, "fclose": 0, "fprintf": 0, "fputc": 1, "fputs": 1, "memcpy": 1, "memmove": 1, "strcpy": 1,
    "strlen": 0, "readdir": 0,
}  # fmt: skip
_TARGET = Pattern(r"^(?:\([\w\s*]*\)\s*)?(?:(?P<owner>[A-Za-z_]\w*)\s*(?:->|\.)\s*)?(?P<name>[A-Za-z_]\w*)$")
_SET = r"(?<![\w.>]){0}\s*=(?!=)\s*(?P<value>[^;]*);"
_SET_MEMBER = r"\b\w+\s*(?:->|\.)\s*{0}\s*=(?!=)\s*(?P<value>[^;]*);"
_CALL = Pattern(r"^(?:\([\w\s:*]*\)\s*)?(?P<by>\w+)\s*\(")
_NOTHING = Pattern(r"^(?:\([\w\s*]*\)\s*)?(?:NULL|nullptr|0)$")
_NAME = Pattern(r"^[A-Za-z_]\w*$")
_ASKING = Pattern(r"\b(?:if|while|\w*assert)\s*\((?P<test>[^;{}]*)")
_QUOTED = 60


class NullMember(msgspec.Struct, frozen=True):
    """`target` is null, which `made_at` in `maker` sets by `call`, and `place` uses it.

    `size`: what an allocation asked for; `read_at`: the line that reads that from a file. `calls`: the only line of the
    program that calls `maker`. `line`: the failing one.
    """

    target: str
    call: str
    by: str
    maker: str
    made_at: LineWords
    place: LineWords
    line: str
    size: str | None = None
    read_at: LineWords | None = None
    calls: LineWords | None = None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        told = f"`{self.target}` is null, which {self.made_at} sets by `{self.call}`, and nothing checks it"
        return f"{told}; {self.read_at} reads `{self.size}` from a file" if self.read_at is not None else told

    @property
    def advice(self) -> str:
        """What to look at, and the check that is missing."""
        check = f"Let {self.maker}() check what {self.by}() returns, and return an error to Python."
        if self.by in _OPENERS:
            at = f" where {self.calls} calls {self.maker}()" if self.calls is not None else ""
            return f"Look at what `{self.call}` ({self.made_at}) was to open{at}: it could not be opened. {check}"
        if self.read_at is not None:
            return (
                f"Look at the file that {self.read_at} reads `{self.size}` from, at the place that it had come to: the "
                f"number is no length, as in a file of another layout, a damaged one, or one that was read from a "
                f"wrong place. Refuse what is longer than the file before `{self.call}` ({self.made_at}). {check}"
            )
        size = f" with `{self.size}`" if self.size is not None else ""
        return (
            f"Look at how `{self.call}` ({self.made_at}) comes to its size{size}, from what {self.line} passes: no "
            f"such memory can be had. {check}"
        )


def null_member(view: ProcessView) -> NullMember | None:
    """None where another pointer may be the null one, something else may set it, or anything asks for it."""
    frame = running_frame(view)
    source = own_source(frame) if frame is not None else None
    if frame is None or source is None or source[0].line is None:
        return None
    file, number = source[0].file or "", source[0].line
    text = without_comments("\n".join(source[1]))
    place, end = statement_span(text.split("\n"), number)
    around = function_around(text, place)
    found = [*_used(view, text[place:end])] if around is not None and frame is not own_frames(view)[0] else []
    if around is None or len(set(found)) != 1:
        return None
    target = found[0]
    made = _made(text, around, target)
    if made is None:
        return None
    maker, value, at = made
    called = _CALL.match(value)
    last = closing(value, called.end() - 1) if called is not None else None
    if last is None or value[last + 1 :].strip():
        return None  # `if ((f = fopen(...)) == NULL)`
    by = called["by"] if called is not None else ""
    if by not in (*_OPENERS, *_ALLOCATORS) or _is_asked(text, (maker, around), target):
        return None
    given = split(value[called.end() : last]) if called is not None else ()
    size = given[-1] if by in _ALLOCATORS and given else None
    read = numbers_read(text, maker, at, size) if size is not None and _NAME.match(size) else None
    calls = [*lines_that_call(view, (maker.name,))]
    return NullMember(
        target,
        shortened(" ".join(value.split()), _QUOTED),
        by,
        maker.name,
        line_in(file, text.count("\n", 0, at) + 1, None),
        line_in(file, number, None),
        line_words(view),
        shortened(size, _QUOTED) if size is not None else None,
        line_in(file, read.line, None) if read is not None else None,
        calls[0] if len(calls) == 1 else None,
    )


def _used(view: ProcessView, running: str) -> Iterator[str]:
    """What the running line passes to a function of libc where that goes through it, by the kind of access."""
    write = view.fault is not None and view.fault.access == "write"
    for name, place in (_WRITTEN if write else _READ).items():
        for _, given in calls_of(running, name):
            text = given[place].strip() if place < len(given) else ""
            if _TARGET.match(text):
                yield " ".join(text.split())


def _made(text: str, around: Function, target: str) -> tuple[Function, str, int] | None:
    """The function that sets it, the value and the place of that; None unless there is one such, but for null."""
    match = _TARGET.match(target)
    if match is None:
        return None
    own = re.escape(match["name"])
    sets = [*re.finditer((_SET_MEMBER if match["owner"] else _SET).format(own), text)]
    if not match["owner"]:
        end = closing(text, around.body) or len(text)
        if around.place_of(match["name"]) is not None:
            return None
        sets = [item for item in sets if around.body < item.start() < end]
    cleared = [item for item in sets if _NOTHING.match(item["value"].strip())]
    sets = [item for item in sets if item not in cleared]
    maker = function_around(text, sets[0].start()) if len(sets) == 1 else None
    if maker is None or any(function_around(text, item.start()) != maker for item in cleared):
        return None  # such as by a function that closes it
    return maker, sets[0]["value"].strip(), sets[0].start()


def _is_asked(text: str, functions: tuple[Function, Function], target: str) -> bool:
    """Whether the function that sets it, or the one that uses it, tests it."""
    match = _TARGET.match(target)
    owner = r"(?:\w+\s*(?:->|\.)\s*)?" if match is not None and match["owner"] else ""
    own = rf"(?<![\w.>]){owner}{re.escape(match['name'] if match is not None else '')}\b(?!\s*(?:\[|->|=(?!=)))"
    tests = rf"(?:!|\bif\s*\(|\bwhile\s*\(|\bassert\s*\(|&&|\|\||[=!]=)\s*\(?\s*{own}|{own}\s*(?:[=!]=|&&|\|\||\?)"
    asks = re.compile(tests)
    return any(asks.search(body) or _asked_elsewhere(text, body, asks) for body in _bodies(text, functions))


def _bodies(text: str, functions: tuple[Function, Function]) -> Iterator[str]:
    yield from (text[item.body : closing(text, item.body)] for item in functions)


def _asked_elsewhere(text: str, body: str, asks: re.Pattern[str]) -> bool:
    """Whether a function of the file that a test calls does: `if (!is_open(r)) return -1;`."""
    for match in _ASKING.finditer(body):
        for name in re.findall(r"(\w+)\s*\(", match["test"]):
            if any(asks.search(text[item.body : closing(text, item.body)]) for item in defined(text, name)):
                return True
            if any(
                re.search(r"\breturn\b[^;]*(?:->|\.)\s*\w+\s*;", text[item.body : closing(text, item.body)])
                for item in defined(text, name)
            ):
                return True
    return False
