"""Calls that each rank makes for its own share alone, with itself as the root."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

SOURCE = """def step(self):
    for i, p in enumerate(self.params):
        {0}
            {1}
        dist.reduce(p.grad, {2})
step(opt)
"""
BELOW = SOURCE.replace("            {1}\n        dist", "            dist")


@pytest.mark.parametrize(
    ("source", "roots", "known"),
    [
        (BELOW.format("if self.owner[i] == self.rank:", "", "dst=self.rank"), (0, 1), 4),
        (BELOW.format("if rank == owner_of(p):", "", "rank"), (0, 1), 4),
        (SOURCE.format("if self.owner[i] != self.rank:", "continue", "dst=self.rank"), (0, 1), 5),
        (BELOW.format("if self.owner[i] == self.rank:", "", "dst=self.rank"), (0, 2), None),  # not itself
        (BELOW.format("if p.grad is not None:", "", "dst=self.rank"), (0, 1), None),  # meant for one root, perhaps
        (BELOW.format("if self.owner[i] == self.rank:", "", "dst=self.owner[i]"), (0, 1), 4),
        (BELOW.format("if self.owner[i] == self.chosen:", "", "dst=self.chosen"), (0, 1), None),
    ],
)
def test_each_rank_reduces_its_own_share_only(
    source: str, roots: tuple[int, int], known: int | None, run: Path
) -> None:
    """To make the root the same would leave each share with one rank's call; all have to call for all shares."""
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    line = known or 4
    for rank, (box, root) in enumerate(zip(job.boxes, roots, strict=True)):
        way: Frame = ("step", program, line)
        box.collective(
            "reduce_",
            group=job.groups[rank]["0"],
            by=box.site(in_torch, way),
            sequence_nr=1,
            state="failed",
            sizes=[4],
            nbytes=16,
            root=root,
        )
        box.at(7000).exception("RuntimeError", TIME_OUT, [in_torch, way, ("<module>", program, 6)]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    report = build_report(job.job(run))
    assert ("each rank calls it only for its own share (line 3" in summary(report)) is (known is not None)
    if known is not None:
        assert "call it on all ranks, with `dst=" in advice(report) and "make it the same" not in advice(report)
