"""In each home of training each death is explained, and a healthy run is as without pytracer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.homes.homes import CELLS, HOMES, Cell, Home
from tests.homes.runner import comparable, confidently_wrong, judge, missing, report_of, run
from tests.support.memory_cgroup import NoMemoryCgroup

pytestmark = needs_native

TIMES = int(os.environ.get("PYTRACER_HOMES_TIMES", "1"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty directory."""
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


def _marks(quick: bool) -> list[pytest.MarkDecorator]:
    return [] if quick else [pytest.mark.every_home]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "cell", [pytest.param(cell, id=str(cell), marks=_marks(cell.death in cell.home.quick)) for cell in CELLS]
)
def test_death_is_explained(
    cell: Cell, work: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Class, culprit, line, headline and next step are those of the truth that was written down before."""
    if reason := missing(cell.home):
        pytest.skip(reason)
    recordings = (work if cell.home.volume else tmp_path) / "run"
    record_property("problems", ["the job did not end in time: there is no report"])
    record_property("wrong", False)
    try:
        outcome = run(cell.home, cell.death, work, recordings)
    except NoMemoryCgroup as why:
        pytest.skip(f"no memory cgroup can be made here: {why}")
    report = report_of(recordings)
    if not os.environ.get("PYTRACER_HOMES_KEEP"):
        shutil.rmtree(recordings)
    problems = judge(cell, report)
    wrong = confidently_wrong(cell, report)
    verdict = report.verdict
    record_property("headline", (verdict.summary if verdict else None) or "")
    record_property("next", (verdict.advice if verdict else None) or "")
    record_property("class", f"{verdict.class_} ({verdict.confidence})" if verdict else "none")
    record_property("problems", problems)
    record_property("wrong", wrong)
    assert not wrong, problems
    if cell.xfail and problems:
        pytest.xfail(cell.xfail)
    assert not problems, f"{verdict and verdict.summary}\n{outcome.stderr}"
    assert not cell.xfail, "it is right now: remove the mark"


@pytest.mark.every_home
@pytest.mark.timeout(900)
@pytest.mark.parametrize("home", [home for home in HOMES if home.healthy], ids=lambda home: home.name)
def test_healthy_run_is_as_untraced(home: Home, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Standard output and exit status are equal."""
    if reason := missing(home):
        pytest.skip(reason)
    for time in range(1, TIMES + 1):
        seen = []
        for traced in (False, True):
            work = tmp_path / f"{time}-{traced}"
            work.mkdir()
            recordings = (work if home.volume else tmp_path) / f"run-{time}"
            seen.append(comparable(home, run(home, "none", work, recordings if traced else None)))
            if traced:
                verdict = report_of(recordings).verdict
                shutil.rmtree(recordings)
        assert seen[0][0] == 0, seen[0]
        assert seen[0] == seen[1]
        assert verdict is not None and verdict.class_ == "clean", verdict
        record_property("healthy", f"{time} of {TIMES}")
