"""Threads of one process that wait for each other's locks, ended by a time limit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import PROGRAMS, line_of, traced_run
from tests.support.deaths import advice, summary, verdict

pytestmark = needs_native


@pytest.mark.parametrize("kind", ["crossed", "in order"])
def test_locks_taken_in_opposite_orders_are_named_with_their_lines(kind: str, tmp_path: Path) -> None:
    """The look-alike: a thread that holds the lock and is at work has taken both in the same order."""
    command = ["timeout", "3", sys.executable, str(PROGRAMS / "crossed_locks.py"), kind]
    report = traced_run(*command, run=tmp_path / "run").report
    assert verdict(report) == ("hang", "likely")
    crossed = kind == "crossed"
    assert ("held `model_lock` and waited for `stats_lock`" in summary(report)) == crossed
    taken, first = line_of("crossed_locks.py", 'print("trained")') - 1, line_of("crossed_locks.py", "if not waits:") - 1
    words = f"line {taken} takes `stats_lock` inside of `model_lock` (line {first})"
    assert (words in advice(report)) == crossed
