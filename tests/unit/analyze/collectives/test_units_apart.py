"""Ranks that ran different units of FSDP in one forward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, evidence, finding, summary
from tests.support.scenarios import TORCH, program_in

PROGRAM = """\
import torch
class Net(nn.Module):
    def forward(self, x, full=False):
        for layer in self.layers:
            {test}
            x = layer(x)
        return x
def main(rank):
    torch.manual_seed(7 + rank)
    for step in range(9):
        loss = net(batch())
        loss.backward()
"""
DROP = "if self.training and torch.rand(()) < self.drop: continue"
GATHER, REDUCE = "_allgather_base_", "_reduce_scatter_base_"


def reported(
    run: Path, test: str, forwards: Sequence[Sequence[Sequence[int]]], line: int = 6, end: int | None = None
) -> Report:
    """Two ranks that each ran these layers, forward by forward; the backward of the last one failed.

    `end`: or the gather of that number, of layers of different sizes.
    """
    program = str(program_in(run, PROGRAM.format(test=test)))
    job = Ranks(2)
    for rank, (box, own) in enumerate(zip(job.boxes, forwards, strict=True)):
        forward, back = ("forward", program, line), ("main", program, 12)
        root = (GATHER, "all_gather", None, ("main", program, 11))
        calls = [item for layers in own for item in (root, *((GATHER, "all_gather", n, forward) for n in layers))]
        calls += [(GATHER, "all_gather", own[-1][-1], back), (REDUCE, "post_backward_reduce", own[-1][-1], back)]
        count = end or max(sum(len(layers) + 1 for layers in items) for items in forwards) + 1
        for number, (name, step, layer, frame) in enumerate(calls[:count], 1):
            size = 8 * ((layer or 0) + 1) if end else 8
            given = dict(call(name, size, state="failed" if number == count else "completed"))
            given.pop("name")
            given.pop("line")
            by = box.site((name, f"{TORCH}/distributed/distributed_c10d.py", 3000), frame)
            scope = box.scope(f"FSDP::{step} (layers.{layer})" if layer is not None else f"FSDP::{step}")
            box.collective(name, group=job.groups[rank]["0"], by=by, sequence_nr=number, scope=scope, **given)
        inner = [("backward", f"{TORCH}/_tensor.py", 600), back]
        stack = [*([calls[count - 1][3]] if end else inner), ("<module>", program, 13)]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    return build_report(job.job(run))


def test_layer_that_one_rank_dropped_at_random_is_named(run: Path) -> None:
    """With the line that draws, and the one that seeds by the rank."""
    report = reported(run, DROP, [[[0, 2]], [[0, 1, 2]]])
    said = "left out `layers.1`, which rank 1 ran (program.py:6 in forward): line 5 "
    assert summary(report) == (
        f"Rank 0 {said}decides by `torch.rand(())`, which each rank draws for itself. Ranks disagree in collective 5 "
        "at program.py:12 in main: rank 0 called reduce_scatter_tensor; rank 1 called all_gather_into_tensor."
    )
    assert (
        f"rank 0 {said}(`{DROP}`) decides, by `torch.rand(())` of line 5, which each rank draws for itself; line 9 "
        "(`torch.manual_seed(7 + rank)`) seeds by the rank"
    ) in evidence(report)
    assert advice(report).startswith("Draw `torch.rand(())` of line 5 alike on all ranks: ")
    found = finding(report, "collective-mismatch")
    assert found is not None and not found.missing


def test_forwards_before_tell_the_order_of_the_layers(run: Path) -> None:
    """Where the ranks failed at once, and neither came to the other's layer."""
    report = reported(run, DROP, [[[0, 1, 2], [0, 2]], [[0, 1, 2], [0, 1]]], end=7)
    assert "Rank 0 left out `layers.1`, which rank 1 ran" in summary(report)


def test_layers_in_no_known_order_are_both_named(run: Path) -> None:
    """None was left out, for all that is known: an expert that each rank chose, by its data."""
    report = reported(run, "if x.mean() > self.limit[layer]: continue", [[[0, 2]], [[0, 1]]], end=3)
    said = summary(report)
    assert "rank 0 ran `layers.2` where rank 1 ran `layers.1` (program.py:6 in forward): line 5 (`if x.mean()" in said
    assert "draws" not in said and "seed" not in said
    assert advice(report).startswith("Line 5 (`if x.mean() > self.limit[layer]: continue`) goes by `x`, of which each")


@pytest.mark.parametrize("test", ["if len(x) == 0: continue", "if not layer.rows(x).any(): continue"])
def test_unit_that_a_rank_has_no_data_for_is_to_run_on_all_ranks(test: str, run: Path) -> None:
    """No rank can decide for the others' data: the `continue` is to be taken out."""
    said = advice(reported(run, test, [[[0, 2]], [[0, 1, 2]]]))
    assert "goes by `x`, of which each rank may have data of its own" in said
    assert "take the `continue` of line 5 out, give it an empty or blank input" in said
    assert "Let one rank decide" not in said
    assert said.endswith("Or do not make it a unit of its own.")


@pytest.mark.parametrize(
    "test",
    [
        *("if self.skip(): continue", "if layer.frozen: continue", "if self.calls[x.device] > 3: continue"),
        *("if not x.requires_grad: continue", "if full: continue"),
    ],
)
def test_unit_that_something_else_skips_can_be_decided_by_one_rank(test: str, run: Path) -> None:
    """The look-alikes: what the module keeps, an option, and what is no data of a tensor."""
    said = advice(reported(run, test, [[[0, 2]], [[0, 1, 2]]]))
    assert "Let one rank decide and broadcast it, or run the unit on all ranks (take the `continue` of line 5" in said
    assert "data of its own" not in said and "both ways" not in said


def test_several_conditions_may_have_decided(run: Path) -> None:
    """One of them draws."""
    report = reported(run, f"if layer.frozen: continue\n            {DROP}", [[[0, 2]], [[0, 1, 2]]], line=7)
    assert "line 6 may have decided by `torch.rand(())`" in summary(report)


@pytest.mark.parametrize("layers", [[[0, 1, 2]], [[0, 1, 2], [0, 1, 2]]])
def test_ranks_that_ran_the_same_units_are_not_told_apart(layers: list[list[int]], run: Path) -> None:
    """The look-alike: one of them made another forward."""
    report = reported(run, DROP, [[[0, 1, 2]], layers])
    assert "left out `layers" not in summary(report) and "draws" not in summary(report)
