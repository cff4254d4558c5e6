"""Real jobs without an error that resemble broken ones: no rule fires."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import traced
from tests.distributed.scenarios import FINE, Scenario
from tests.support.leftovers import leftovers

pytestmark = [needs_core, needs_native]
MARKS = {True: [], False: [pytest.mark.every_job]}


@pytest.mark.parametrize("scenario", [pytest.param(s, id=str(s), marks=MARKS[s.often]) for s in FINE])
@pytest.mark.quick(1)
def test_nothing_is_found(scenario: Scenario, run: Path) -> None:
    """The verdict is clean and there is no finding; every collective was seen to complete."""
    done = traced(scenario, run)
    assert (done.status, leftovers(str(done.run))) == (0, []), done.stderr
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.findings, report.damage) == ("clean", [], [])
    ranks = done.job.ranks
    assert [process.rank for process in ranks] == list(range(scenario.ranks))
    for process in ranks:
        assert {c.state for c in process.snapshot.collectives} == {"completed"}
        assert process.snapshot.counts["hook_errors"] == 0
