"""Threads that were in a profiler of torch's beside the one that crashed below stop()."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.native.other_profilers import OtherProfilers, other_profilers
from pytracer.report.job import PythonFrame

PROFILER = "/usr/lib/python3/site-packages/torch/profiler/profiler.py"
SOURCE = """\
class Member(Thread):
    def run(self):
        prof = profile(activities=[CPU])
        prof.start()
        train()
        prof.stop()
        table(prof.key_averages())

def main():
    with profile(schedule=plan) as prof:
        train()
"""
MAIN, CRASHED, OTHER = 10, 11, 12


def found_of(
    folder: Path, *, line: int = 6, tid: int = CRASHED, other: int | None = 7, below: str = PROFILER
) -> OtherProfilers | None:
    """The crashed thread stops a profiler at `line`; another one is at the line `other`, below a file of torch's."""
    script = folder / "train.py"
    script.write_text(SOURCE)
    os.utime(script, (0, 0))
    stack = [PythonFrame("profile.stop", PROFILER, 9), PythonFrame("Member.run", str(script), line)]
    theirs = [PythonFrame("key_averages", below, 5), PythonFrame("Member.run", str(script), other)]
    crash = SimpleNamespace(
        tid=tid,
        threads=[SimpleNamespace(tid=OTHER, pthread=2)],
        python_threads=[(1, tuple(stack)), *([(2, tuple(theirs))] if other is not None else [])],
    )
    snapshot = SimpleNamespace(pid=MAIN, rank=None, created_wall_ns=1 << 62, argv=("a",), named={}, facts=())
    view: Any = SimpleNamespace(crash=crash, python_stack=stack, process=SimpleNamespace(snapshot=snapshot))
    return other_profilers(view)


def test_other_thread_and_the_line_that_begins_a_profiler_in_each_are_named(tmp_path: Path) -> None:
    """By the stacks of that moment, and by the source of the function."""
    found = found_of(tmp_path)
    assert found is not None
    assert found.words == "; thread 12 was in a profiler of its own at train.py:7 in Member.run"
    assert found.advice == " Line 4 (`prof.start()`) begins one in each thread that runs Member.run."


def test_thread_that_has_ended_is_not_named(tmp_path: Path) -> None:
    """The source alone: the function that begins it is run by a thread."""
    found = found_of(tmp_path, other=None)
    assert found is not None and found.words == "" and "Line 4" in found.advice


@pytest.mark.parametrize("other", [None, 7])
def test_main_thread_alone_may_have_profiled(other: int | None, tmp_path: Path) -> None:
    """The look-alike: threads that do something else prove nothing."""
    assert (
        found_of(tmp_path, line=10, tid=MAIN, other=other, below="/usr/lib/python3/site-packages/torch/nn/f.py") is None
    )


def test_with_statement_begins_one_as_well(tmp_path: Path) -> None:
    found = found_of(tmp_path, line=10, other=None)
    assert found is not None
    assert found.begins == (10, "with profile(schedule=plan) as prof")
