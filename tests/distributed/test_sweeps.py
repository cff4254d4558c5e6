"""Jobs that one script starts in turn are analyzed separately."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.distributed.jobs import PROGRAMS
from tests.support.crash import healthy, traced_run

pytestmark = [needs_native, pytest.mark.slow]


def sweep(run: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "sweep.py"), *arguments]


def test_next_job_of_a_sweep_is_not_compared_with_the_last(run: Path) -> None:
    """Both have ranks 0 and 1 and a first all_reduce, of other dtypes."""
    done = healthy(
        lambda: traced_run(*sweep(run), run=run), lambda: traced_run(*sweep(run), run=run, options=("--force",))
    )
    assert done.status == 0, done.stderr
    verdict = done.report.verdict
    assert verdict is not None and verdict.class_ == "clean", verdict
    ranks = [(item.rank, item.attempt) for item in done.report.processes or [] if item.role == "rank"]
    assert sorted(ranks) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_failure_in_an_earlier_job_of_a_sweep_is_an_attempt(run: Path) -> None:
    """The script caught it and continued: the last job counts, and the first one's verdict is kept."""
    done = traced_run(*sweep(run, "fail"), run=run)
    assert "a job of the sweep failed" in done.stdout
    earlier = (done.report.attempts or [])[0].verdict
    assert earlier is not None and earlier.summary is not None and "the learning rate is negative" in earlier.summary
    assert earlier.rank == 1
