"""The program's own functions between Python and where native code is, with their source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.fault_function import HEADERS, is_own_frame
from pytracer.analyze.evidence.own_code.c_text import blanked, defined, without_comments
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.program_text import program_sources
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, PythonFrame, SourceLine

RELEASES = Pattern(
    r"\b(?:gil_scoped_release|Py_BEGIN_ALLOW_THREADS|PyEval_SaveThread|PyEval_ReleaseThread|Py_UNBLOCK_THREADS"
    r"|AutoNoGIL|pybind11_scoped_release|no_gil|nogil)\b"
)
_BLOCK = Pattern(r"\{[^{}]*\}")


class OwnStep(msgspec.Struct, frozen=True):
    """A function of the program on the way: the compiler may have put it into another one, whose frame it is."""

    name: str
    line: SourceLine | None
    frame: NativeFrame


class StepText(msgspec.Struct, frozen=True):
    """The source of a function: `line` is the one that runs, None where the text is the program's own."""

    file: str
    lines: list[str]
    line: int | None


def own_steps(way: Sequence[NativeFrame]) -> Iterator[OwnStep]:
    """Of frames, the innermost first; functions that the compiler put into one another are several."""
    for frame in way:
        lines = [item for item in frame.lines or () if item.file and item.line and not HEADERS.search(item.file)]
        yield from (OwnStep(function_words(item.function or frame.function or "?"), item, frame) for item in lines)
        if not lines and frame.function and is_own_frame(frame):
            yield OwnStep(function_words(frame.function), None, frame)


def step_text(view: ProcessView, frames: Sequence[PythonFrame], own: OwnStep) -> StepText | None:
    """Of the file, or of the text in the program that it was made from."""
    found = next((lines for line, lines in own_sources(own.frame) if line is own.line), None)
    if found is not None and own.line is not None:
        return StepText(own.line.file or "", found, own.line.line)
    name = own.name.rpartition("::")[2]
    for file, lines in program_sources(view, [own.frame.image or ""], frames):
        if len(defined(without_comments("\n".join(lines)), name)) == 1:
            return StepText(file, lines, None)
    return None


def open_blocks(text: str) -> str:
    """With spaces for the blocks that are closed: what they released they took again."""
    before = None
    while before != text:
        before, text = text, blanked(_BLOCK, text)
    return text
