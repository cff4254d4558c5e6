"""The stack of an exception that is deeper than what is recorded of it."""

from __future__ import annotations

from pytracer.render.frames import exception_lines
from pytracer.report.job import ExceptionReport, PythonFrame

_AGAIN = PythonFrame(function="visit", file="train.py", line=5)
_OTHER = PythonFrame(function="walk", file="train.py", line=9)
_BEGAN = [
    PythonFrame(function="main", file="train.py", line=20),
    PythonFrame(function="<module>", file="train.py", line=30),
]


def _lines(stack: list[PythonFrame], outermost: list[PythonFrame] | None, count: int | None) -> list[str]:
    return exception_lines(ExceptionReport(python_stack=stack, outermost=outermost, frame_count=count))


def test_line_that_repeats_is_counted_and_followed_by_what_began_it() -> None:
    """The frames between are not recorded, but both ends are that line."""
    lines = _lines([_AGAIN] * 64, [_AGAIN] * 22 + _BEGAN, 1000)
    assert lines == [
        "visit  train.py:5",
        "... the same line 997 more times",
        "main      train.py:20",
        "<module>  train.py:30",
    ]


def test_nothing_is_folded_where_another_line_may_be_between() -> None:
    """Where the frames that are kept differ, or the line that repeats is not reached from outside."""
    for stack, outer in (([_AGAIN, _OTHER] * 32, [_AGAIN, *_BEGAN]), ([_AGAIN] * 64, [_OTHER, *_BEGAN])):
        assert not any("same line" in line for line in _lines(stack, outer, 1000))
    assert _lines([_AGAIN, *_BEGAN], None, None) == [
        "visit     train.py:5",
        "main      train.py:20",
        "<module>  train.py:30",
    ]
