"""Real jobs by their digests: digest alone, digest and the suspects' recordings, and all recordings agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.digest import BYTES_PER_RANK, digest_name, make_digest
from pytracer.analyze.engine import build_report
from pytracer.decode.job.digests import load_digests
from pytracer.decode.job.load import load_runs
from pytracer.report.job import Report
from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import blamed, traced
from tests.distributed.scenarios import WRONG, Scenario

pytestmark = [needs_core, needs_native]

# A fault in backward, a rank that was killed, calls that differ, a rank that others wait for: one of them is quick.
CHOSEN = ("segfault_in_backward", "killed", "op", "skipped")


def _parameters() -> list[object]:
    chosen = [next(item for item in WRONG if item.function == name and item.ranks == 3) for name in CHOSEN]
    return [
        pytest.param(item, id=str(item), marks=[] if item.function == "segfault_in_backward" else [pytest.mark.slow])
        for item in chosen
    ]


def told(report: Report) -> tuple[object, ...]:
    verdict = report.verdict
    assert verdict is not None
    return verdict.class_, blamed(report), verdict.confidence, verdict.summary


@pytest.mark.parametrize("scenario", _parameters())
def test_digest_tells_what_the_recordings_tell(scenario: Scenario, run: Path, tmp_path: Path) -> None:
    """Class, guilty ranks, confidence and headline; what would decide more is named where it was not read."""
    done = traced(scenario, run)
    full = done.report
    assert blamed(full) == scenario.guilty
    job = load_runs(run)
    content = make_digest(job)
    assert len(content) <= BYTES_PER_RANK * scenario.ranks
    folder = tmp_path / "digests"
    folder.mkdir()
    (folder / digest_name(job)).write_bytes(content)
    away = run.rename(run.with_name("copied"))
    alone = build_report(load_digests([str(folder)]))
    with_suspects = build_report(load_digests([str(folder)], [str(away)]))
    assert told(with_suspects) == told(full)
    assert told(alone) == told(full)
    assert alone.run is not None and alone.run.digests is not None
    assert with_suspects.run is not None and with_suspects.run.digests is not None
    assert with_suspects.run.digests.unread == []
    # A call that differs is decided by what the digests have; of a death, the recording of the rank tells more.
    assert len(alone.run.digests.unread or []) == (1 if scenario.program == "deaths" else 0)
