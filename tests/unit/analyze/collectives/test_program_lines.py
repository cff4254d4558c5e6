"""The program's line that led to a collective which an installed package called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pytracer.analyze.collectives.program_lines import at_lines, program_line
from pytracer.decode.types.storages import PythonFrame as Recorded
from pytracer.report.job import PythonFrame

SITE = "/opt/env/lib/python3.11/site-packages"
GATHER, SCORE, MAIN = (
    ("_gather_one", f"{SITE}/accelerate/ops.py", 355),
    ("score", "/job/score.py", 26),
    ("main", "/job/train.py", 7),
)
INNER, LOOP = ("all_gather", f"{SITE}/torch/distributed/c10d.py", 4287), ("gather", f"{SITE}/accelerate/acc.py", 31)


def rank(number: int, *stack: tuple[str, str, int]) -> Any:
    frames = [PythonFrame(function=name, file=file, line=line) for name, file, line in stack]
    process = SimpleNamespace(rank=number, role="rank", snapshot=SimpleNamespace(ending=None))
    return SimpleNamespace(
        index=number, process=process, raised=False, python_stack=frames, exception_stack=[], crash=None
    )


def call(place: tuple[str, str, int] = GATHER) -> Any:
    return SimpleNamespace(place=Recorded(*place))


def said(*views: Any) -> list[str]:
    job: Any = SimpleNamespace(views=views)
    return at_lines(job, [(view.process.rank, call()) for view in views])


def test_the_innermost_line_of_the_program_around_the_packages_call_is_told() -> None:
    """With the package's own place, which is recorded."""
    found = program_line(rank(0, INNER, GATHER, LOOP, SCORE, MAIN), call())
    assert found is not None and (found.file, found.line) == ("/job/score.py", 26)
    assert said(rank(0, INNER, GATHER, LOOP, SCORE)) == [" at score.py:26 in score, by accelerate/ops.py:355"]


def test_a_call_of_the_programs_own_has_its_line_already() -> None:
    assert program_line(rank(0, INNER, SCORE, MAIN), call(SCORE)) is None


def test_where_a_rank_went_on_the_recorded_lines_are_compared() -> None:
    """Its stack is of another moment."""
    assert program_line(rank(1, ("sleep", "/job/score.py", 40)), call()) is None
    there, gone = rank(0, INNER, GATHER, SCORE), rank(1, ("sleep", "/job/score.py", 40))
    assert said(there, gone) == [" at accelerate/ops.py:355 in _gather_one"] * 2
