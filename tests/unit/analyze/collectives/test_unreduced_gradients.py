"""A rank whose backward() left out a parameter: DDP reduces nothing there, and the rank goes on to its next call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Box, Frame

SOURCE = """def main(loader):
    model = DDP(Net())
    for images, targets in loader:
        losses = criterion(model(images, targets), targets)
        sum(losses.values()).backward()
        opt.step()
        total = torch.stack([*losses.values()])
        dist.all_reduce(total)
main(loader())
"""
BACKWARD = ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979)
REDUCE = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3245)
NAMES = ("head.weight", "head.bias", "extra.weight")


def round_of(box: Box, group: int, program: str, gradients: int, *, reduces: bool, ends: bool = True) -> None:
    """One backward and, where it `ends`, the program's own all_reduce; where DDP `reduces`, its own before that."""
    for _ in range(gradients):
        box.event("NODE", "AccumulateGrad")
    calls: list[tuple[Frame, int, int, str]] = [(BACKWARD, 5, 64, "completed")] if reduces else []
    if ends:
        calls.append((REDUCE, 8, 3, "completed"))
    for place, line, count, state in calls:
        by = box.site(place, ("main", program, line))
        last = not (reduces and ends) and (place, state)
        box.collective("allreduce_", group=group, by=by, state="failed" if last else state, sizes=[count])
    if reduces and ends:
        return
    place, line = (BACKWARD, 5) if reduces else (REDUCE, 8)
    stack = [place, ("main", program, line), ("<module>", program, 9)]
    box.now += 1_000_000
    box.exception("RuntimeError", TIME_OUT, stack).exit(1)


def report_of(run: Path, gradients: tuple[int, int] = (2, 3), settings: dict[str, Any] | None = None) -> Report:
    """Rank 0 comes through its second backward without DDP's reduction; rank 1 waits in that."""
    program, job = str(program_in(run, SOURCE)), Ranks(2)
    for rank, box in enumerate(job.boxes):
        tensors = [{"fqn": name, "addr": 0x1000 + 64 * n, "nbytes": 64} for n, name in enumerate(NAMES)]
        box.module("Net", tensors, settings=settings or {})
        box.buckets("Net", [{"addr": 0x9000, "nbytes": 192, "parameters": dict.fromkeys(NAMES, 64)}])
        group = job.groups[rank]["0"]
        round_of(box, group, program, 3, reduces=True)
        round_of(box, group, program, gradients[rank], reduces=rank == 1, ends=rank == 0)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    return build_report(job.job(run))


def test_rank_whose_backward_left_out_a_parameter_is_told(run: Path) -> None:
    found = report_of(run)
    assert (
        "the last backward() of rank 0 made gradients of 2 of DDP's 3 parameters, so DDP did not complete their "
        "reduction there, and rank 0 went on"
    ) in summary(found)
    assert "See why the loss of rank 0 did not depend on 1 parameter in that step" in advice(found)
    assert "find_unused_parameters=True" in advice(found) and "skips it" not in advice(found)


@pytest.mark.parametrize(
    ("gradients", "settings"),
    [
        ((3, 3), None),  # no_sync(), or a forward of the module inside
        ((0, 3), None),  # it left out the backward
        ((2, 3), {"find_unused_parameters": True}),
    ],
)
def test_backward_that_was_whole_or_left_out_is_not_told(
    gradients: tuple[int, int], settings: dict[str, Any] | None, run: Path
) -> None:
    """The look-alikes."""
    assert "made gradients of" not in summary(report_of(run, gradients, settings))
