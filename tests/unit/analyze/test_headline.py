"""The Python line of a crash in the sentence that says what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import scenarios as s
from tests.support.deaths import died, summary

FAULT: dict[str, Any] = {"addr": 0x6_0000_0008, "code": 1}


def test_line_stands_before_the_explanation(run: Path) -> None:
    """Else it would be read as the place of the release."""
    text = summary(died(run, signal=6, code=-6, sender_pid=101, python=[("f", s.SCRIPT, 12)]))
    assert text.startswith("Process 101 (train.py) aborted, at train.py:12 in f")


@pytest.mark.parametrize(
    "how",
    [
        {"python": []},
        {"python": [("f", f"{s.TORCH}/nn/functional.py", 5)]},
        {"signal": 15, "code": 0, "sender_pid": 99, "addr": 0, "python": [("f", s.SCRIPT, 12)]},
    ],
)
def test_line_is_left_out_where_it_is_not_what_went_wrong(how: dict[str, Any], run: Path) -> None:
    """Unknown, a library's only, or the place where a signal from outside met the process."""
    assert ", at " not in summary(died(run, **{**FAULT, **how}))


def test_line_that_is_known_already_is_not_repeated(run: Path) -> None:
    """A Python exception names it itself."""
    report = died(run, **FAULT, python=[("f", s.SCRIPT, 12), ("g", s.SCRIPT, 20)])
    assert summary(report).count("train.py:12") == 1
