"""A rank that was done earlier, as a sampler of the program deals out samples that do not divide evenly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.blackbox.numbers import Entry
from tests.support.collectives import CLOSED, Ranks, call
from tests.support.deaths import advice, summary
from tests.support.scenarios import SCRIPT, TORCH, program_in

DEALS = """\
class Parts:
    def __init__(self, data, rank, world):
        part = math.ceil(len(data) / world)
        self.numbers = range({0}, len(data))
    def __iter__(self):
        return iter(self.numbers)
def fit(data, rank, world):
    loader = DataLoader(data, sampler=Parts(data, rank, world))
    for batch in loader:
        step(batch)
"""
OWN = {"dataset": "Cuts", "iterable": False, "sampler": "Parts", "distributed": False, "plain": False}
SAID = "of its own of the 61 samples of Cuts, which 2 ranks cannot share evenly"


def told(run: Path, part: str = "rank * part", *loaders: dict[str, Any], samples: int = 61) -> tuple[str, str]:
    """Rank 1 has ended well, and rank 0 is in the loop."""
    program = str(program_in(run, DEALS.format(part)))
    job = Ranks(2)
    for box in job.boxes:
        for loader in loaders or (OWN,):
            box._json(Entry.LOADER, {**loader, "initialized": True, "samples": samples})
    job.everybody(call(line=44))
    job.calls(0, call(state="failed", line=44), first=2)
    stack = [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252), ("step", SCRIPT, 44)]
    job.boxes[0].at(7000).exception("RuntimeError", CLOSED, [*stack, ("fit", program, 10)]).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.done(1)
    report = build_report(job.job(run))
    return summary(report), advice(report)


def test_line_that_deals_them_out_is_the_reason(run: Path) -> None:
    """With their number, and that of the ranks."""
    said, do = told(run)
    assert said.endswith(f": line 4 (`rank * part`) gives each rank a part {SAID}.")
    assert do.startswith(f"Line 4 (`rank * part`) gives each rank a part {SAID}. Give all ranks as many rounds")


@pytest.mark.parametrize(
    ("part", "loaders", "samples"),
    [
        ("rank * part", (), 62),
        ("rank + part", (), 61),
        ("rank * part", (OWN, OWN), 61),
        ("rank * part", ({**OWN, "distributed": True},), 61),
        ("rank * part", ({**OWN, "iterable": True},), 61),
    ],
    ids=["even", "no-part", "two-loaders", "distributed", "iterable"],
)
def test_other_samples_are_no_reason(part: str, loaders: tuple[dict[str, Any], ...], samples: int, run: Path) -> None:
    """The look-alikes: what divides evenly, what deals nothing out, and loaders that torch shares out."""
    said, _ = told(run, part, *loaders, samples=samples)
    assert "cannot share evenly" not in said
