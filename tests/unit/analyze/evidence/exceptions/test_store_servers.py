"""A call of a TCPStore that failed because the rank that serves it had ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, summary, verdict
from tests.support.scenarios import program_in

PROGRAM = """\
import torch.distributed as dist
def make(rank, port):
    return {0}
def report(board, store, n):
    {1}
"""
MADE = 'dist.TCPStore("127.0.0.1", port, 2, rank == 0)'
LOST = "Broken pipe"


def reported(
    run: Path,
    *,
    made: str = MADE,
    line: str = 'store.add("done", 1)',
    message: str = LOST,
    server: str = "done",
    kind: str = "torch.distributed.DistNetworkError",
) -> Report:
    """Rank 1 raised at the last line; rank 0 had ended well, failed, or still ran."""
    program = str(program_in(run, PROGRAM.format(made, line)))
    job = Ranks(2)
    job.everybody(call())
    if server == "done":
        job.done(0, at=5000)
    elif server == "later":
        job.done(0, at=7500)
    job.boxes[1].at(7000).exception(kind, message, [("report", program, 5), ("main", program, 6)]).exit(1)
    job.endings[1] = {"exit_code": 1}
    return build_report(job.job(run))


def test_the_rank_that_served_the_store_and_ended_first_is_told(run: Path) -> None:
    """With the line that makes the store, and what keeps that rank alive."""
    report = reported(run)
    assert verdict(report) == ("python-exception", "likely")
    assert "rank 0, which serves the TCPStore (line 3), had ended with status 0, 2.000 s before" in summary(report)
    assert "dist.barrier() on all ranks behind their last call of the store (line 5 is one)" in advice(report)


@pytest.mark.parametrize(
    "made",
    ['dist.TCPStore("127.0.0.1", port, is_master=rank == 0)', 'dist.TCPStore("h", port, 2, is_master=not rank)'],
)
def test_the_server_is_known_by_what_is_given_as_is_master(made: str, run: Path) -> None:
    assert "rank 0, which serves the TCPStore (line 3)" in summary(reported(run, made=made))


def test_the_store_of_the_process_group_is_served_by_rank_0(run: Path) -> None:
    """No line makes one: init_process_group() does."""
    said = summary(reported(run, made='dist.init_process_group("gloo")'))
    assert "rank 0, which serves the TCPStore, had ended" in said


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"server": "later"}, id="ended later"),
        pytest.param({"line": 'board.add("done", 1)'}, id="no store"),
        pytest.param({"made": 'dist.TCPStore("127.0.0.1", port, 2, rank == 1)'}, id="served by another"),
        pytest.param({"message": "wait timeout after 5000ms"}, id="a timeout"),
        pytest.param({"kind": "OSError"}, id="another error"),
    ],
)
def test_other_errors_are_no_end_of_the_server(how: dict[str, str], run: Path) -> None:
    """Each of the facts is needed."""
    assert "serves the TCPStore" not in summary(reported(run, **how))
