"""A layer that one rank froze after the wrapping: DDP does not reduce its bucket there, and the other rank waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

PROGRAM = """\
class Net(nn.Module):
    def forward(self, x):
        return self.head(self.body(x))
def main():
    model = DDP(Net())
    for step in {rounds}:
        loss = model(batch(step)).sum()
        {test}
            {freeze}
        loss.backward()
    barrier()
main()
"""
BACKWARD = ("Tensor.backward", f"{TORCH}/_tensor.py", 623)
BARRIER = ("barrier", f"{TORCH}/distributed/distributed_c10d.py", 4900)
FREEZES = "model.module.head.requires_grad_(False)"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({}, True),
        ({"freeze": "model.module.head.requires_grad_(True)"}, False),
        ({"test": "if True: pass\n        with timer:"}, False),
        ({"rounds": "range(len(files()))"}, False),
    ],
    ids=["frozen", "not frozen", "on all ranks", "other rounds"],
)
def test_layer_that_one_rank_may_have_frozen_is_named(parts: dict[str, str], told: bool, run: Path) -> None:
    """The look-alikes: the other way, without a condition, and a loop that may have more rounds on one rank."""
    filled = {"rounds": "range(3)", "test": "if loss.item() > best:", "freeze": FREEZES, **parts}
    source = PROGRAM.format(**filled)
    program = str(program_in(run, source))
    lines = [number for number, text in enumerate(source.split("\n"), 1) if "backward" in text or "    barrier" in text]
    job = Ranks(2)
    for rank, (box, line) in enumerate(zip(job.boxes, lines, strict=True)):
        last = (BACKWARD, BARRIER)[rank]
        box.buckets("model", [{"addr": 0x1000, "nbytes": 64, "parameters": {"head.weight": 32, "body.weight": 32}}])
        group = job.groups[rank]["0"]
        by = box.site(BACKWARD, ("main", program, lines[0]))
        for number in range(1, 4 if rank == 0 else 3):
            state = "failed" if number == 3 else "completed"
            box.collective("allreduce_", group=group, by=by, sequence_nr=number, state=state, sizes=[4])
        if rank == 1:
            by = box.site(BARRIER, ("main", program, line))
            box.collective("barrier", group=group, by=by, sequence_nr=3, state="failed", sizes=[1])
        stack = [last, ("main", program, line), ("<module>", program, len(source.split("\n")) - 1)]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    report = build_report(job.job(run))
    said = f"line 9 (`{FREEZES}`), below `if loss.item() > best` (line 8), freezes `head` after line 5 has wrapped"
    assert (said in summary(report)) == told, summary(report)
    assert ("Freeze `head` (line 9 of program.py) before line 5 wraps the model" in advice(report)) == told
