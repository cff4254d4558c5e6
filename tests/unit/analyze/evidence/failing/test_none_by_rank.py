"""What one rank alone makes and the others use: which line makes it None, and the near cases that stay silent."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

NONE = "'NoneType' object has no attribute 'log'"
KEPT = """class State:
    def __init__(self, model, logger=None):
        self.model, self.logger = model, logger
    def report(self):
        self.logger.log(1)
def save(state):
    payload = state.report()
    if rank == 0:
        print(payload)
def main(rank, model):
    {made}
    state = State(model, logger)
    save(state)
"""
OWN = """class Run:
    def __init__(self, rank, is_main):
        self.rank = rank
        {first}
        {second}
    def fit(self):
        self.writer.log(1)
    {more}
"""
ONE = "if rank == 0:\n            self.writer = {}()"
OTHERS = "if rank != 0:\n            self.writer = {}()"
WITH_SETUP = "def open(self):\n        if self.rank == 0:\n            self.writer = Writer()"


def said(
    folder: Path, source: str, name: str, way: list[tuple[str, int]], rank: int | None = 1, local: int | None = None
) -> Explanation:
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    held = SimpleNamespace(rank=rank) if rank is not None else None
    environment = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": "4"} if local is not None else {}
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=held, environment=environment, argv=("a",)
    )
    frames = [PythonFrame(function=function, file=str(file), line=line) for function, line in way]
    error = ExceptionReport(type="AttributeError", message=NONE, variables=[VariableReport(name=name, value="None")])
    return explained(snapshot, error, frames)


def of_kept(folder: Path, made: str, rank: int | None = 1, source: str = KEPT) -> Explanation:
    way = [("State.report", 5), ("save", 7), ("main", 13)]
    return said(folder, source.format(made=made), "self.logger", way, rank)


def of_own(folder: Path, first: str, second: str = "pass", more: str = "", **how: Any) -> Explanation:
    source = OWN.format(first=first, second=second, more=more)
    line = source[: source.index(".log(1)")].count("\n") + 1
    return said(folder, source, "self.writer", [("Run.fit", line)], **how)


def test_what_the_constructor_was_given_is_followed_to_the_line_that_makes_it_on_one_rank(tmp_path: Path) -> None:
    found = of_kept(tmp_path, "logger = Logger() if rank == 0 else None")
    assert found.subject == "`self.logger` is None on ranks other than 0: line 11 makes it only `if rank == 0`"
    assert found.words == (
        "`self.logger` is None here: line 11 makes it only `if rank == 0`; line 12 passes it to State(). All ranks "
        "come here by line 7: move that below `if rank == 0` (line 8), or test `self.logger is not None` at line 5."
    )


def test_a_collective_on_the_way_is_not_moved_below_the_test(tmp_path: Path) -> None:
    source = KEPT.replace("self.logger.log(1)", "self.logger.log(dist.all_gather(1))")
    words = of_kept(tmp_path, "logger = Logger() if rank == 0 else None", source=source).words
    assert words is not None and "move" not in words and "Use it on rank 0 only, or test" in words


@pytest.mark.parametrize(
    "made",
    [
        "logger = Logger() if rank == 0 else None",
        "logger = None if rank != 0 else Logger()",
        "logger = Logger() if dist.get_rank() == 0 else None",
        "main = rank == 0\n    logger = Logger() if main else None",
        "logger = None\n    if rank == 0:\n        logger = Logger()",
        "if rank == 0:\n        logger = Logger()\n    else:\n        logger = None",
        "if rank > 0:\n        logger = None\n    else:\n        logger = Logger()",
    ],
)
def test_each_form_is_understood(made: str, tmp_path: Path) -> None:
    found = said(tmp_path, KEPT.format(made=made), "self.logger", [("State.report", 5), ("save", 7)])
    assert found.subject is not None
    assert found.subject.startswith("`self.logger` is None on ranks other than 0: line ")


@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        ("self.writer = Writer() if rank == 0 else None", "pass", ""),
        ("self.writer = None", ONE.format("Writer"), ""),
        ("self.writer = None", "pass", WITH_SETUP),
        ("self.writer = make(rank)", "pass", "\ndef make(rank):\n    if rank == 0:\n        return Writer()"),
        ("self.writer = make(rank)", "pass", "\ndef make(rank):\n    return Writer() if rank == 0 else None"),
        (
            "self.writer = make(rank)",
            "pass",
            "\ndef make(rank):\n    if rank != 0:\n        return None\n    return W()",
        ),
    ],
)
def test_an_attribute_of_one_rank_is_named(first: str, second: str, more: str, tmp_path: Path) -> None:
    found = of_own(tmp_path, first, second, more)
    assert found.subject is not None and "is None on ranks other than 0: line" in found.subject
    assert found.words is not None and "Use it on rank 0 only, or test `self.writer is not None`" in found.words


def test_a_local_rank_is_compared_with_the_local_rank(tmp_path: Path) -> None:
    first = "self.writer = Writer() if local_rank == 0 else None"
    found = of_own(tmp_path, first, rank=3, local=1)
    assert found.subject is not None and "is None on local ranks other than 0" in found.subject
    assert "on local ranks" not in (of_own(tmp_path, first, rank=2, local=0).subject or "")
    assert "on local ranks" not in (of_own(tmp_path, first, rank=2).subject or "")


@pytest.mark.parametrize(
    ("first", "second", "more", "rank"),
    [
        ("self.writer = Writer() if rank == 0 else None", "pass", "", 0),
        ("self.writer = Writer() if rank == 0 else None", "pass", "", None),
        ("self.writer = Writer() if verbose else None", "pass", "", 1),
        ("self.writer = Writer() if rank == 0 else Silent()", "pass", "", 1),
        ("self.writer = None", ONE.format("A"), "def f(self):\n        self.writer = B()", 1),
        ("self.writer = None", ONE.format("A"), "def close(self):\n        self.writer = None", 1),
        ("self.writer = None", ONE.format("A"), "\nrun.writer = find()", 1),
        ("self.writer = None", OTHERS.format("A"), "", 1),
        ("self.writer = None", "pass", "", 1),
    ],
    ids=["that rank", "no rank", "no test", "not None", "set by others", "closed", "outside", "other ranks", "never"],
)
def test_what_is_none_for_another_reason_is_not_put_down_to_the_rank(
    first: str, second: str, more: str, rank: int | None, tmp_path: Path
) -> None:
    found = of_own(tmp_path, first, second, more, rank=rank)
    assert "on ranks" not in (found.subject or "") and "rank 0 only" not in (found.words or "")


def test_what_a_constructor_was_given_is_not_called_unset(tmp_path: Path) -> None:
    words = of_kept(tmp_path, "logger = find()").words
    assert words is not None and "no line of State" not in words
    assert words.startswith("`self.logger` is None: State() was given None by line 12, or nothing, for `logger`, which")
