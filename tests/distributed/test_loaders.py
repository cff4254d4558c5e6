"""A DataLoader worker is identified: its number, its rank, the samples it was loading."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import PROGRAMS
from tests.support.crash import Ended, torchrun, traced_run, victim

pytestmark = [needs_core, needs_native]


@pytest.mark.parametrize("function", ["segfault", "killed"])
@pytest.mark.quick(1)
def test_worker_is_named_with_rank_and_samples(function: str, run: Path) -> None:
    """Sample 13 is the second of its batch; worker 1 had batches 1 and 3."""
    done = traced_run(*torchrun(PROGRAMS / "workers.py", function), run=run)
    verdict = done.report.verdict
    assert verdict is not None
    assert (verdict.summary or "").startswith("DataLoader worker 1 of rank 1, loading samples 12-15, ")
    died = next(p for p in done.report.processes or [] if p.pid == verdict.pid)
    assert (died.role, died.rank, died.parent_rank, died.attempt) == ("dataloader-worker", None, 1, 0)
    assert died.worker is not None
    assert (died.worker.worker_id, died.worker.num_workers, died.worker.dataset) == (1, 2, "Shard")
    assert (died.worker.batch_samples, died.worker.batch_indices, died.worker.loading) == (4, "12-15", True)
    assert done.report.findings is not None
    assert done.report.findings[0].ranks == [1]


@pytest.mark.slow
def test_loader_that_gave_up_names_worker_samples_and_line(run: Path) -> None:
    """Sample 13 is never loaded: the worker's stack is that when its rank ended it. The other rank lost its peer."""
    done = traced_run(*torchrun(PROGRAMS / "workers.py", "slow"), run=run)
    verdict = done.report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence, verdict.rank) == ("python-exception", "certain", 1)
    assert (verdict.summary or "").startswith("Rank 1 gave up after 2 s at workers.py:"), verdict.summary
    assert "DataLoader worker 1 of rank 1 had been loading samples 12-15 for " in (verdict.summary or "")
    assert "in hang" in (verdict.summary or ""), verdict.summary
    assert "python-exception" not in [item.id for item in done.report.findings or []]
    other = next(p for p in done.report.processes or [] if p.rank == 0)
    assert (other.primary, other.why) == (False, "lost the connection to rank 1")


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("way", ["untraced", "preload"])
@pytest.mark.quick(1)
def test_loading_is_recorded_and_not_changed(method: str, way: str, run: Path) -> None:
    """Batches, an iterable dataset, samples without batches, keys that are words: the same output as untraced."""
    done: Ended = victim(PROGRAMS / "loaders.py", method, run=run, way=way)
    assert done.status == 0, done.stderr
    assert done.stdout == "[6, 22, 38] [0, 1, 2] [3, 3] ['ab']\nValueError\n"
    if way == "untraced":
        return
    workers = [box.worker for box in done.boxes if box.worker is not None]
    assert {(w.dataset, w.batch_indices, w.batch_count, w.loading) for w in workers if w.dataset != "Bad"} == {
        ("Numbers", "8-11", 4, False),
        ("Numbers", "2", 1, False),
        ("Stream", None, 2, False),
        ("Words", "'a','b'", 2, False),
    }
    assert [w.loading for w in workers if w.dataset == "Bad"] == [False]  # the exception was passed to the trainer
