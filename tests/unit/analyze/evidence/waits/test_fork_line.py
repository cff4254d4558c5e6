"""The line that forked a child, said beside the line where the child waits."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.waits.fork_line import ForkLine
from pytracer.report.job import PythonFrame

HERE = "/job/train.py"


def said(here: str) -> str:
    """Of a child that waits in the file `here`."""
    at = PythonFrame(function="main", file=HERE, line=55)
    return ForkLine(at, "Process", "worker.start()", 54, None, None, (("Queue", 53),), here=here).advice


@pytest.mark.parametrize(
    ("here", "lines"),
    [
        ("/job/faces.py", ("train.py:55 (", "at train.py:54", "the Queue() of train.py:53")),
        (HERE, ("Line 55 (", "at line 54", "the Queue() of line 53")),
    ],
)
def test_lines_have_their_file_where_the_child_waits_in_another_one(here: str, lines: tuple[str, ...]) -> None:
    """The headline names the child's line first. The look-alike: a program in one file."""
    for line in lines:
        assert line in said(here)
