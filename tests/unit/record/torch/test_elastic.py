"""Sentences for torchrun's table, from a report."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytracer.record import conclusion
from pytracer.record.torch import elastic


def report(*processes: dict[str, Any], **verdict: Any) -> conclusion.ReportJson:
    return cast("conclusion.ReportJson", {"verdict": verdict, "processes": [{"host": "h", **p} for p in processes]})


FRAMES = [
    {"file": "/usr/lib/python3.11/ctypes/__init__.py", "line": 5, "function": "string_at"},
    {"file": "/job/train.py", "line": 12, "function": "step"},
]


def test_victim_follower_and_undecided_are_told_apart() -> None:
    """The cause with its place in the program, the consequence with its reason; unrelated processes are left out."""
    found = conclusion.verdict_sentences(
        report(
            {"pid": 1, "primary": True, "why": "first", "python_stack": FRAMES},
            {"pid": 2, "primary": False, "why": "lost the connection to rank 1"},
            {"pid": 3, "primary": None, "why": "died at about the same time as others"},
            {"pid": 4, "primary": None, "why": None},
            {"pid": 5, "host": "other", "primary": True},
            {"pid": 6, "primary": False, "why_kind": "limit", "why": "ended by timeout, process 9, at its time limit"},
            pid=1, summary="Rank 1 read through a null pointer.",
        ),
        "h",
    )  # fmt: skip
    assert found == {
        1: "pytracer: Rank 1 read through a null pointer, train.py:12 in step",
        2: "pytracer: a consequence: lost the connection to rank 1",
        6: "pytracer: ended by timeout, process 9, at its time limit",
        3: "pytracer: died at about the same time as others",
    }


def test_a_place_that_the_summary_says_is_not_said_again() -> None:
    """Exceptions name their line themselves."""
    process = {"pid": 1, "primary": True, "exception": {"python_stack": FRAMES}}
    told = conclusion.verdict_sentences(report(process, pid=1, summary="Rank 1 raised X at train.py:12 in step."), "h")
    assert told == {1: "pytracer: Rank 1 raised X at train.py:12 in step"}


@pytest.mark.parametrize("content", [{}, {"verdict": None, "processes": None}, report({"pid": None})])
def test_a_report_that_says_nothing_adds_nothing(content: conclusion.ReportJson) -> None:
    """As of a job of which nothing was recorded."""
    assert conclusion.verdict_sentences(content, "h") == {}


def test_rows_get_the_sentence_and_missing_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of a signal gets a line and a file; a traceback of @record gets a line, its file stays as it is."""
    monkeypatch.setattr(elastic, "report_so_far", lambda directory: {})
    monkeypatch.setattr(elastic, "verdict_sentences", lambda content, host: {1: "pytracer: A", 2: "pytracer: B"})
    missing, present = tmp_path / "error.json", tmp_path / "present.json"
    present.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(elastic, "_error_files", {1: str(missing), 2: str(present)})
    signal = SimpleNamespace(pid=1, message="Signal 11", timestamp=5, exitcode=-11, error_file="<N/A>")
    message: dict[str, Any] = {
        "message": "ValueError: x",
        "extraInfo": {"py_callstack": "Traceback\n", "timestamp": "5"},
    }
    raised = SimpleNamespace(pid=2, message=message, timestamp=5, exitcode=1, error_file=str(present))
    other = SimpleNamespace(pid=3, message="Signal 15", timestamp=5, exitcode=-15, error_file="<N/A>")
    elastic._tell(tmp_path, {0: signal, 1: raised, 2: other})
    assert (signal.message, signal.error_file) == ("Signal 11\n  pytracer: A", str(missing))
    assert json.loads(missing.read_text(encoding="utf-8"))["message"]["extraInfo"]["timestamp"] == "5"
    assert raised.message["extraInfo"] == {"py_callstack": "Traceback\npytracer: B", "timestamp": "5"}
    assert message["extraInfo"]["py_callstack"] == "Traceback\n"
    assert present.read_text(encoding="utf-8") == "{}"
    assert (other.message, other.error_file) == ("Signal 15", "<N/A>")


def one_row(monkeypatch: pytest.MonkeyPatch, content: conclusion.ReportJson) -> Any:
    """The message of process 2, the only one in the table."""
    monkeypatch.setattr(elastic, "report_so_far", lambda directory: content)
    monkeypatch.setattr("socket.gethostname", lambda: "h")
    row = SimpleNamespace(pid=2, message="Signal 15", timestamp=5, exitcode=-15, error_file="<N/A>")
    elastic._tell(Path(), {0: row})
    return row.message


CAUSE = {"pid": 1, "primary": True, "why": "first"}
FOLLOWER = {"pid": 2, "primary": False, "why": "lost the connection to rank 1"}
SUMMARY = "Rank 1 read through a null pointer."


def test_a_table_without_the_cause_has_the_headline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of Accelerate's launcher in a notebook, and of a node whose ranks lost their peer on another one."""
    told = ["Signal 15", "pytracer: a consequence: lost the connection to rank 1"]
    found = one_row(monkeypatch, report(CAUSE, FOLLOWER, pid=1, summary=SUMMARY))
    assert found == "\n  ".join([*told, "pytracer: Rank 1 read through a null pointer"])


@pytest.mark.parametrize(
    "content",
    [
        report({**FOLLOWER, "pid": 7}, CAUSE, pid=1, summary=SUMMARY),  # of processes that were not recorded
        report({"pid": 2, "primary": None, "why": None}, CAUSE, pid=1, summary=SUMMARY),
    ],
)
def test_a_table_of_others_has_no_headline(content: conclusion.ReportJson, monkeypatch: pytest.MonkeyPatch) -> None:
    """A death that none of them followed is not theirs: an earlier cell's."""
    assert one_row(monkeypatch, content) == "Signal 15"
