"""A tensor of a queue whose sender was joined before; and where nothing in the function did so."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame

REBUILDS = PythonFrame(
    function="rebuild_storage_fd", file="/x/site-packages/torch/multiprocessing/reductions.py", line=538
)
GET = PythonFrame(function="Queue.get", file="/usr/lib/python3.11/multiprocessing/queues.py", line=122)
LIST = """def collect(n):
    workers = []
    for i in range(n):
        w = mp.Process(target=work, args=(i, q))
        w.start()
        workers.append(w)
    for w in workers:
        {0}
    return [q.get() for _ in workers]
collect(2)
"""
ONE = """def collect(q):
    p = ctx.Process(target=work, args=(q,))
    p.start()
    {0}
    out = q.get()
    {1}
collect(q)
"""


def said(folder: Path, source: str, line: int, library: tuple[PythonFrame, ...] = (REBUILDS, GET)) -> str:
    """The words about the line that gets it."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, rank=None, environment={})
    frames = [*library, PythonFrame(function="collect", file=str(file), line=line)]
    found = explained(snapshot, ExceptionReport(type="FileNotFoundError", message="[Errno 2] No such file"), frames)
    return found.words or ""


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (LIST.format("w.join()"), 9, "Line 8 joins the processes before line 9 gets what they sent"),
        (ONE.format("p.join()", "pass"), 5, "Join (line 4) behind the last `q.get()`"),
    ],
)
def test_join_before_the_get_is_named(source: str, line: int, words: str, tmp_path: Path) -> None:
    """Of a list of processes, or of one."""
    assert words in said(tmp_path, source, line)


@pytest.mark.parametrize(
    ("source", "line", "library"),
    [
        (LIST.format("w.join(timeout=1)"), 9, (REBUILDS, GET)),  # it may still run
        (LIST.format("names = sep.join(w)"), 9, (REBUILDS, GET)),
        (ONE.format("pass", "p.join()"), 5, (REBUILDS, GET)),
        (ONE.format("thread.join()", "pass"), 5, (REBUILDS, GET)),
        (ONE.format("p.join()", "pass"), 5, (GET,)),  # no tensor
    ],
)
def test_nothing_is_said_of_other_joins(
    source: str, line: int, library: tuple[PythonFrame, ...], tmp_path: Path
) -> None:
    """With a time-out, behind the get, of a thread, of texts."""
    assert "joins the processes" not in said(tmp_path, source, line, library)
