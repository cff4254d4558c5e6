"""Processes of a report in a table: how each ended, and why."""

import pytest

from pytracer.render.processes import failure_words, status_words, why_words
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
