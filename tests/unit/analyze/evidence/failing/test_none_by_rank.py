"""What one rank alone makes and the others use: which line makes it None, and the near cases that stay silent."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

NONE = "'NoneType' object has no attribute '{}'"
RANK = 'rank = int(os.environ["RANK"])\nlocal_rank = int(os.environ["LOCAL_RANK"])\n'
KEPT = """class State:
    def __init__(self, model, logger=None):
        self.model, self.logger = model, logger
    def report(self):
        return {{"logger": self.logger.state_dict()}}
def save(state):
    payload = state.report()
    if rank == 0:
        print(payload)
def main(model):
    {made}
    state = State(model, logger)
    save(state)
"""
OWN = """class Run:
    def __init__(self, verbose):
        self.rank = rank
        {first}
        {second}
    def fit(self):
        {use}
    {more}
"""
USE = "self.writer.log(1)"
ONE = "if rank == 0:\n            self.writer = {}()"
OTHERS = "if rank != 0:\n            self.writer = {}()"
WITH_SETUP = "def open(self):\n        if self.rank == 0:\n            self.writer = Writer()"


def said(
    folder: Path, source: str, name: str, way: list[tuple[str, int]], rank: int | None = 1, local: int | None = None
) -> Explanation:
    file = folder / "train.py"
    file.write_text(source + RANK, encoding="utf-8")
    held = SimpleNamespace(rank=rank) if rank is not None else None
    environment = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": "4"} if local is not None else {}
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=held, environment=environment, argv=("a",)
    )
    frames = [PythonFrame(function=function, file=str(file), line=line) for function, line in way]
    used = "state_dict" if "state_dict()" in source.splitlines()[way[0][1] - 1] else "log"
    error = ExceptionReport(
        type="AttributeError", message=NONE.format(used), variables=[VariableReport(name=name, value="None")]
    )
    return explained(snapshot, error, frames)


def of_kept(folder: Path, made: str, rank: int | None = 1, source: str = KEPT) -> Explanation:
    way = [("State.report", 5), ("save", 7), ("main", 13)]
    return said(folder, source.format(made=made), "self.logger", way, rank)


def of_own(folder: Path, first: str, second: str = "pass", more: str = "", use: str = USE, **how: Any) -> Explanation:
    source = OWN.format(first=first, second=second, more=more, use=use) + "\n"
    line = source[: source.index(".log(")].count("\n") + 1
    return said(folder, source, "self.writer", [("Run.fit", line)], **how)


def test_what_the_constructor_was_given_is_followed_to_the_line_that_makes_it_on_one_rank(tmp_path: Path) -> None:
    found = of_kept(tmp_path, "logger = Logger() if rank == 0 else None")
    assert found.subject == "`self.logger` is None on ranks other than 0: line 11 makes it only `if rank == 0`"
    assert found.words == (
        "`self.logger` is None here: line 11 makes it only `if rank == 0`; line 12 passes it to State(). All ranks "
        "come here by line 7: move that below `if rank == 0` (line 8), or test `self.logger is not None` at line 5."
    )


LOGGER = "logger = Logger() if rank == 0 else None"


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("self.logger.state_dict()", "self.logger.state_dict(), 1: dist.all_gather(1)"),
        ("payload = state.report()", "payload = (state.report(), train(state))"),
        ("def report(self):", "def report(self):  # DTensor\n        self.saved = FSDP"),
        ("        return {{", "        self.calls = 1\n        return {{"),
        ("print(payload)", "print(payload)\n    return payload"),
        ("if rank == 0:\n        print", "if group_rank == 0:\n        print"),
        ("    if rank == 0:\n        print", "    state.step += 1\n    if rank == 0:\n        print"),
    ],
    ids=["collective", "unknown call", "sharded", "counts", "read elsewhere", "other test", "changed before"],
)
def test_what_may_need_all_ranks_is_not_moved_below_the_test(part: str, other: str, tmp_path: Path) -> None:
    source = KEPT.replace(part, other)
    assert source != KEPT
    lines = source.splitlines()
    way = [
        (name, next(n for n, line in enumerate(lines, 1) if text in line))
        for name, text in (("State.report", "self.logger.state_dict"), ("save", "payload ="), ("main", "    save("))
    ]
    words = said(tmp_path, source.format(made=LOGGER), "self.logger", way).words
    assert words is not None and "move that" not in words and "rank 0 only, or" not in words
    assert "If the other ranks need it, make it on all of them, or send it from rank 0 with broadcast_obj" in words


def test_training_below_a_logger_is_not_moved(tmp_path: Path) -> None:
    source = (
        "def train(model, opt, writer):\n    step(model, opt)\n    writer.log(1)\n    return 1\n"
        "def main(model, opt):\n    writer = Writer() if rank == 0 else None\n    loss = train(model, opt, writer)\n"
        "    if rank == 0:\n        print(loss)\n"
    )
    words = said(tmp_path, source, "writer", [("train", 3), ("main", 7)]).words
    assert words is not None and "move that" not in words and "or test `writer is not None` before line 3" in words


@pytest.mark.parametrize(
    "use", ["x = self.writer.log(1)", "self.writer.log(reduced(1))", "fit(self.writer.log(1))", "self.writer.log(1)(2)"]
)
def test_a_value_that_is_used_is_not_to_be_left_out(use: str, tmp_path: Path) -> None:
    words = of_own(tmp_path, "self.writer = Writer() if rank == 0 else None", use=use).words
    assert words is not None and "make it on all of them" in words and "rank 0 only, or" not in words


def test_a_method_that_meets_the_other_ranks_is_not_to_be_left_out(tmp_path: Path) -> None:
    more = "\nclass Writer:\n    def log(self, value):\n        dist.all_reduce(value)"
    words = of_own(tmp_path, "self.writer = Writer() if rank == 0 else None", more=more).words
    assert words is not None and "make it on all of them" in words and "rank 0 only, or" not in words


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


WRITER = "self.writer = Writer() if rank == 0 else None"


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
        ("self.writer = None", "pass", WITH_SETUP, 1),
        (WRITER, "pass", "\nclass Other(Run):\n    def __init__(self):\n        self.writer = find()", 1),
        (WRITER, "pass", "\nclass Other:\n    writer: str | None", 1),
        (WRITER, "pass", "\nsetattr(run, name, find())", 1),
        ("rank = world_rank % 2; self.writer = Writer() if rank == 0 else None", "pass", "", 1),
        ("rank = dist.get_rank(group); self.writer = Writer() if rank == 0 else None", "pass", "", 1),
        ("self.writer = Writer() if rank == 0 and verbose else None", "pass", "", 1),
        ("self.writer = Writer() if self.is_main else None", "pass", "", 1),
        ("self.writer = make()", "pass", "\n@from_first\ndef make():\n    return W() if rank == 0 else None", 1),
        ("self.writer = None", "if verbose: return\n        " + ONE.format("A"), "", 1),
    ],
    ids=[
        "that rank",
        "no rank",
        "no test",
        "not None",
        "set by others",
        "closed",
        "outside",
        "other ranks",
        "never",
        "another method",
        "subclass",
        "annotation",
        "by name",
        "modulo",
        "group",
        "two tests",
        "unknown",
        "wrapped",
        "left before",
    ],
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


def test_a_line_below_the_test_itself_is_left_to_others(tmp_path: Path) -> None:
    found = of_own(tmp_path, WRITER, use="if rank == 0:\n            self.writer.log(1)")
    assert "on ranks" not in (found.subject or "")


def test_an_option_of_the_same_name_is_not_the_attribute(tmp_path: Path) -> None:
    source = OWN.format(first=WRITER, second="pass", more="", use=USE) + "\nname = args.writer.log(1)\n"
    found = said(tmp_path, source, "args.writer", [("<module>", source.count("\n"))])
    assert "on ranks" not in (found.subject or "")


def test_what_is_used_before_the_constructor_is_through_is_not_put_down_to_the_rank(tmp_path: Path) -> None:
    source = OWN.format(first="self.writer = None; self.fit()", second=ONE.format("A"), more="", use=USE)
    line = source[: source.index(USE)].count("\n") + 1
    found = said(tmp_path, source + "\n", "self.writer", [("Run.fit", line), ("Run.__init__", 4)])
    assert "on ranks" not in (found.subject or "")
