"""Real jobs with an error: the report blames the right ranks, with the right sentence, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import PROGRAMS, blamed, blamed_beside, suspects, traced, untraced
from tests.distributed.scenarios import WRONG, Scenario
from tests.support.leftovers import leftovers

pytestmark = [needs_core, needs_native]


def _parameters() -> list[object]:
    return [pytest.param(scenario, id=str(scenario), marks=_marks(scenario)) for scenario in _often_first()]


def _marks(scenario: Scenario) -> list[pytest.MarkDecorator]:
    """`make test` runs the first of each program."""
    if not scenario.often:
        return [pytest.mark.every_job]
    same = [other for other in _often_first() if other.program == scenario.program]
    return [] if scenario == same[0] else [pytest.mark.slow]


def _often_first() -> list[Scenario]:
    return sorted(WRONG, key=lambda scenario: not scenario.often)


@pytest.mark.parametrize("scenario", _parameters())
def test_right_rank_is_blamed(scenario: Scenario, run: Path) -> None:
    """Status as untraced; class, rank or set, words, also on stderr; no other rank is blamed; no process is left."""
    done = traced(scenario, run)
    assert done.status == scenario.status, done.stderr
    assert leftovers(str(done.run)) == []
    report = done.report
    verdict = report.verdict
    assert verdict is not None
    assert blamed(report) == scenario.guilty, verdict.summary
    assert verdict.class_ in scenario.classes, verdict.summary
    assert [word for word in scenario.words if word not in (verdict.summary or "").lower()] == [], verdict.summary
    assert [word for word in scenario.advice if word not in (verdict.advice or "").lower()] == [], verdict.advice
    assert blamed_beside(report) == []
    assert "".join((verdict.summary or "").split()) in "".join(done.stderr.split())
    assert scenario.status == 0 or suspects(report) == scenario.guilty
    assert report.damage == []


@pytest.mark.every_job
def test_micro_batches_that_were_added_wrongly_before_are_told(run: Path) -> None:
    """The backend matched one rank's last gradients with the other one's in mid-loop, a call before sizes differed."""
    scenario = next(item for item in WRONG if item.function == "accumulates")
    verdict = traced(scenario, run).report.verdict
    assert verdict is not None
    told = [item for item in verdict.evidence or [] if "had matched although" in item]
    assert len(told) == 1, verdict.evidence
    program = (PROGRAMS / "disagreements.py").read_text(encoding="utf-8").splitlines()
    inside, after = (n for n, line in enumerate(program, 1) if "model(torch.randn(8, 16)).sum().backward()" in line)
    assert f"rank 0 called it at disagreements.py:{after} in accumulates" in told[0]
    assert f"rank 1 at disagreements.py:{inside} in accumulates" in told[0]


@pytest.mark.every_job
def test_worker_that_its_rank_did_not_wait_for_is_no_reason(run: Path) -> None:
    """A worker that loads ahead hangs, but its rank was at a line of its own."""
    scenario = next(item for item in WRONG if item.function == "busy_elsewhere")
    verdict = traced(scenario, run).report.verdict
    assert verdict is not None and verdict.rank == 1
    assert "loading" not in f"{verdict.summary} {verdict.advice}", verdict


@pytest.mark.every_job
@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=str(scenario)) for scenario in WRONG])
def test_status_is_the_one_without_pytracer(scenario: Scenario, run: Path) -> None:
    """Untraced jobs have the exit statuses of scenarios.py."""
    done = untraced(scenario, run)
    assert done.status == scenario.status, done.stderr
