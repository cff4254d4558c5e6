"""How ranks noticed what another one did: words about symptoms."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import Ranks, call


@pytest.mark.parametrize("ended", [False, True])
def test_signal_that_ended_a_rank_which_had_noticed(ended: bool, run: Path) -> None:
    """Its exception and the signal of its end do not contradict one another."""
    job = Ranks(3)
    for rank, op in enumerate(("allreduce_", "broadcast_", "broadcast_")):
        job.calls(rank, call(), call(op, state="failed", root=-1 if rank == 0 else 0), first=1)
        job.raised(rank, at=7000 + rank)
    if ended:
        job.terminated(1, 2)
    (finding, *_) = build_report(job.job(run)).findings or []
    said = [item for item in finding.evidence or [] if "noticed" in item]
    both = ["rank 0 noticed: RuntimeError", "ranks 1 and 2 noticed: RuntimeError, then SIGTERM ended them"]
    assert said == (both if ended else ["ranks 0-2 noticed: RuntimeError"])
