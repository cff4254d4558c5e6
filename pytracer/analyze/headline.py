"""The Python line of a crash, in the sentence that says what happened: the first thing that its reader looks for."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.operators.compiled import CompiledCall, compiled_call
from pytracer.analyze.naming import introduction, place_words, short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_OTHER_PLACE = Pattern(r" at \S+:\d")


def with_line(summary: str, views: Sequence[ProcessView]) -> str:
    """`Rank 1 read freed memory, at train.py:12 in step: ...`; unchanged where it is known, or not the program's.

    It comes before the explanation that follows a colon, and before another place, so that it is not read as the place
    of something else.
    """
    frame = _line(views)
    if frame is None or f"{short_file(frame.file)}:{frame.line} " in f"{summary.rstrip('.')} ":
        return summary
    head = introduction(views)
    body = summary.removeprefix(head)
    if body == summary:
        return summary
    what, colon, explanation = body.rstrip(".").partition(": ")
    place = _place(frame, compiled_call(views[0]))
    if _OTHER_PLACE.search(what):
        return f"{head.rstrip(',')}, {place},{body}"
    return f"{head}{what.rstrip(',')}, {place}{colon}{explanation}."


def _place(frame: PythonFrame, compiled: CompiledCall | None) -> str:
    """Of a compiled function, whose own line is only its first one, the call."""
    if compiled is None:
        return f"at {place_words(frame)}"
    called = f", called at {place_words(compiled.caller)}" if compiled.caller is not None else ""
    return f"in the compiled {frame.function}(){called}"


def _line(views: Sequence[ProcessView]) -> PythonFrame | None:
    """The line of the program at which all of them crashed."""
    frames = [view.python_frame for view in views if view.crash is not None]
    if len(frames) < len(views) or any(frame != frames[0] for frame in frames):
        return None
    frame = frames[0]
    return None if frame is None or frame.line is None or is_library_file(frame.file) else frame
