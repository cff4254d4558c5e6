"""A destructor of the program's own that an exception left: C++ ends the process there, and no exception is active."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.native.aborts import terminated_without_exception
from pytracer.analyze.evidence.native.fault_function import HEADERS, is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    closing,
    defined,
    function_around,
    statement_at,
    without_comments,
)
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_THROWS = Pattern(r"\b(?:TORCH_CHECK\w*|TORCH_INTERNAL_ASSERT\w*|AT_ERROR|throw)\b[^;]*")
_CALLS = Pattern(r"(?<![\w.>:~])(\w+)\s*\(")
_DESTRUCTOR = Pattern(r"(?<=:)~\w+(?=(?:\(\))?$)")  # not of what is written in it: `~Scratch()::{lambda()#1}`
_NOEXCEPT = Pattern(r"\bnoexcept\b(?!\s*\(\s*false)|\bthrow\s*\(\s*\)")
_CATCHES = Pattern(r"\bcatch\s*\(")
_REGION = "_omp_fn"
_QUOTED = 60


class ThrowingDestructor(msgspec.Struct, frozen=True):
    """`function` (`~Recorder`) at `place`. `throws`: what may throw, and where; None where the source shows nothing."""

    function: str
    place: str
    throws: tuple[str, str] | None

    @property
    def what(self) -> str:
        """Behind `aborted:`."""
        thrown = f", likely that of `{self.throws[0]}` ({self.throws[1]})" if self.throws is not None else ""
        return f"an exception left the destructor {self.function}() ({self.place}){thrown}: no destructor may throw"

    @property
    def advice(self) -> str:
        """The change to make."""
        which = f"what {self.throws[1]} throws" if self.throws is not None else "what is thrown there"
        return (
            f"Catch {which} in {self.function}() ({self.place}: try and catch around its body), or do that work in a "
            "method that Python calls before the object ends: there the exception becomes one of Python."
        )


def throwing_destructor(view: ProcessView) -> ThrowingDestructor | None:
    """None where the C++ library's own destructor ended the process, as that of a std::thread does."""
    if not terminated_without_exception(view):
        return None
    frames = own_frames(view)
    last = max((number for number, frame in enumerate(frames) if "terminate" in (frame.function or "")), default=-1)
    frame = frames[last + 1] if 0 <= last < len(frames) - 1 else None
    lines = [line for line in frame.lines or () if line.file] if frame is not None else []
    if frame is None or not lines or HEADERS.search(lines[0].file or "") or not is_of_own_image(frame):
        return None
    for line, source in own_sources(frame)[:1]:
        text = "\n".join(source)
        around = function_around(text, statement_at(source, line.line or 1))
        own = text[around.body : closing(text, around.body)] if around is not None else ""
        if around is not None and around.name.startswith("~") and "terminate" not in own:
            place = f"{short_file(line.file or '')}:{line.line}"
            return ThrowingDestructor(around.name, place, _thrown(text, around.body, short_file(line.file or "")))
    return None


def left_destructor(view: ProcessView) -> str | None:
    """`~Scratch()`: the innermost one of the program's own that an exception left, also one that was inlined.

    Of an exception that nobody caught: what would catch it below the destructor has not. None where a function that it
    called ended the process itself (noexcept, a parallel region), or where the destructor may catch it.
    """
    for frame in filter(is_of_own_image, own_frames(view)):
        names = [frame.function or "", *(line.function or "" for line in frame.lines or ())]
        if any(_REGION in name for name in names) or any(map(_keeps, _functions(frame))):
            return None
        found = next((match[0] for name in names[1:] or names if (match := _DESTRUCTOR.search(name))), None)
        if found is not None:
            return f"{found}()"
    return None


def _functions(frame: NativeFrame) -> Iterator[tuple[str, str]]:
    """The name, and the text from the head on, of each function whose source is known."""
    for line, lines in own_sources(frame):
        text = without_comments("\n".join(lines))
        around = function_around(text, statement_at(lines, line.line or 1))
        end = closing(text, around.body) if around is not None else None
        if around is not None and end is not None:
            yield around.name, text[max(text.rfind(ending, 0, around.body) for ending in ";}") + 1 : end]


def _keeps(function: tuple[str, str]) -> bool:
    """Whether no exception, or not each, leaves it for what called it."""
    name, text = function
    if name.startswith("~"):
        return _CATCHES.search(text) is not None
    return _NOEXCEPT.search(text.partition("{")[0]) is not None


def _thrown(text: str, body: int, file: str) -> tuple[str, str] | None:
    """In the body, or in the one function of the file that it calls and that throws."""
    own = text[body : closing(text, body)]
    bodies = [body, *(item.body for name in _CALLS.findall(own) for item in defined(text, name))]
    found = {}
    for start in bodies:
        match = _THROWS.search(text, start, closing(text, start) or start)
        if match is not None:
            found[match.start()] = " ".join(match[0].split())
    if len(found) != 1:
        return None
    at, thrown = found.popitem()
    return shortened(thrown, _QUOTED), f"{file}:{text.count(chr(10), 0, at) + 1}"
