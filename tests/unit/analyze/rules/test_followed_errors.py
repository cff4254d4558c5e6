"""python-exception: what the advice says of the ranks that ended after the first one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, verdict
from tests.support.scenarios import SCRIPT

CLOSED = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:40117"


@pytest.mark.parametrize(("raises", "told"), [(True, True), (False, False)])
def test_errors_of_others_are_only_spoken_of_where_they_had_any(raises: bool, told: bool, run: Path) -> None:
    """The look-alike: a rank that its launcher ended by SIGTERM had none."""
    job = Ranks(2)
    job.everybody(call(line=30))
    job.boxes[0].at(5000).exception("FileExistsError", "[Errno 17] File exists: 'out'", [("main", SCRIPT, 50)]).exit(1)
    job.endings[0] = {"exit_code": 1}
    if raises:
        job.calls(1, call(state="failed", line=44), first=2)
        job.boxes[1].at(6000).exception("RuntimeError", CLOSED, [("step", SCRIPT, 44)]).exit(1)
        job.endings[1] = {"exit_code": 1}
    else:
        job.boxes[1].at(6000).signal_seen(15, 90, ["torchrun"])
        job.terminated(1)
    report = build_report(job.job(run))
    assert verdict(report)[0] == "python-exception"
    assert ("The other ranks' errors followed from it." in advice(report)) == told


@pytest.mark.parametrize("error", [("KeyError", "'label_7'"), ("FileNotFoundError", "[Errno 2] No such file: 'b'")])
def test_error_that_only_came_later_is_not_said_to_follow(error: tuple[str, str], run: Path) -> None:
    """The look-alike: each rank has an error of its own, in what it reads."""
    job = Ranks(2)
    job.everybody(call(line=30))
    for rank, (at, raised) in enumerate(((5000, ("FileExistsError", "[Errno 17] File exists: 'out'")), (5300, error))):
        job.boxes[rank].at(at).exception(*raised, [("main", SCRIPT, 50 + rank)]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    report = build_report(job.job(run))
    assert verdict(report)[0] == "python-exception" and "followed from it" not in advice(report)
