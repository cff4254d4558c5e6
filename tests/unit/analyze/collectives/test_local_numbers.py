"""Conditions by a number that each rank computes for itself, and numbers that the ranks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support.deaths import advice, summary
from tests.unit.analyze.collectives.test_left_out_calls import NO_MODEL, reported

PROGRAM = """import torch.distributed as dist
def save(val_loss):
    if val_loss >= limit:
        return
    dist.barrier()
def validate(model, loader):
    losses = [loss_of(model, x) for x in loader]
    mean = torch.stack(losses).mean()
    {0}
    return {1}
def main(model, loader):
    for step in range(9):
        val_loss = validate(model, loader)
        save(val_loss)
        dist.broadcast(model, 0)
def agreed(x):
    dist.all_reduce(x)
    return x
"""
WAYS = [("save", 5), ("main", 14)], [("main", 15)]
HEAD = "line 3 (`if val_loss >= limit:`)"


def decided(run: Path, shares: str, given: str) -> Report:
    """Rank 0 is in the barrier, and rank 1 went on."""
    source = PROGRAM.format(shares, given)
    return reported(run, source, [], ("barrier", WAYS[0], [1]), ("broadcast_", WAYS[1], [1]), NO_MODEL)


@pytest.mark.parametrize("given", ["mean.item()", "torch.stack(losses).mean().item()"])
def test_loss_that_each_rank_computes_for_itself(given: str, run: Path) -> None:
    """With the line that takes it out of a tensor, and where to share it."""
    report = decided(run, "pass", given)
    assert f"; {HEAD} skipped the barrier on rank 1, by a `val_loss` of its own (line 10)." in summary(report)
    assert advice(report).startswith(
        f"Line 3 (`if val_loss >= limit:`) decides about the call, and came out differently on rank 1: each rank "
        f"computes `val_loss` for itself (line 10: `{given}`). all_reduce() it there"
    )


@pytest.mark.parametrize(
    ("shares", "given"),
    [
        ("dist.all_reduce(mean)", "mean.item()"),
        ("mean = agreed(mean)", "mean.item()"),
        ("mean = accelerator.gather(mean).mean()", "mean.item()"),
        ("pass", "metric.compute()"),
        ("pass", "agreed(mean).item()"),
    ],
)
def test_number_that_the_ranks_share(shares: str, given: str, run: Path) -> None:
    """The look-alikes: by a collective, by a function of the program, and by one of a library."""
    report = decided(run, shares, given)
    assert f"; {HEAD} skipped the barrier on rank 1." in summary(report)
    assert "for itself" not in advice(report)
