"""Processes of a report in a table: how each ended, and why."""

import pytest

from pytracer.render.processes import failure_words, names_words, process_rows, status_words, why_words
from pytracer.report import job as r

HAD_FINISHED = "had finished when rank 0 called barrier #57"


def ended(kind: str, code: int | None = None, why_kind: str = "finding") -> r.ProcessReport:
    status = r.Status(kind=kind, exit_code=code)
    return r.ProcessReport(pid=7, primary=False, why=HAD_FINISHED, why_kind=why_kind, status=status)


def test_an_end_in_order_is_no_consequence_of_what_others_called_later() -> None:
    assert why_words(ended("exited", 0)) == HAD_FINISHED


@pytest.mark.parametrize("item", [ended("exited", 1), ended("signaled"), ended("exited", 0, "sent")])
def test_other_ends_are(item: r.ProcessReport) -> None:
    assert why_words(item) == f"consequence: {HAD_FINISHED}"


def test_the_time_of_an_exception_stands_beside_it_and_not_beside_the_signal_that_ended_the_shutdown() -> None:
    item = r.ProcessReport(
        pid=7,
        ended=40_000_000_000,
        raised=12_645_000_000,
        status=r.Status(kind="signaled", signal=15),
        signal=r.Signal(number=15, name="SIGTERM"),
        exception=r.ExceptionReport(type="torch.distributed.DistStoreError"),
    )
    assert status_words(item) == "SIGTERM"
    assert failure_words(item) == "DistStoreError"


def child(pid: int, **more: object) -> r.ProcessReport:
    name = f"multiprocessing process ForkServerProcess-{pid}"
    status = r.Status(kind="exception", exit_code=1)
    return r.ProcessReport(pid=pid, role="child", name=name, primary=True, status=status, **more)  # type: ignore[arg-type]


def test_error_that_the_program_itself_raised_then_is_in_the_table() -> None:
    """It is what its author saw; a parent that raised nothing is left out, and so is that of one child."""
    error = r.ExceptionReport(type="ConnectionResetError")
    main = r.ProcessReport(pid=9, role="process", primary=False, exception=error, why="died after", why_kind="order")
    quiet = r.ProcessReport(pid=8, role="process", primary=False, why="died after", why_kind="order")
    rows = process_rows(r.Report(processes=[child(1), child(2), main, quiet]))
    assert [names_words(items) for items, _ in rows] == ["ForkServerProcess-1 1", "ForkServerProcess-2 2", "process 9"]
    assert process_rows(r.Report(processes=[child(1), main])) == []
