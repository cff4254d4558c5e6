"""A call that had returned is known by its autograd node, and its operator by the line that made what is overrun."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import CallSite, Holder, Moment, Overrun, PythonFrame, Storage
from pytracer.report.job import Report
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box
from tests.unit.analyze.evidence.preconditions.test_violated import DAMAGED, tensor

G, V, NORMS = 0x5581_0001_0000, 0x5581_0010_0000, 0x5581_0020_0000
NODE = "WeightNormInterfaceBackward0"
LIBRARY = """import torch


def compute(v, g, dim):
    return torch._weight_norm(v, g, dim)
"""
SCRIPT = """import torch


def step(net, x):
    return net(x).sum()


class Layer:
    def forward(self, x):
        w = torch._weight_norm(self.v, self.gain, 0)
        return x @ w
"""


def of_step(
    run: Path, rows: int = 1, *, saved: tuple[int, ...] = (G, V, NORMS), distances: tuple[int, ...] = (1, 1, 1),
    site: bool = True, own: bool = False, overrun: bool = False, held: bool = False, sizes: bool = True,
) -> Report:  # fmt: skip
    """The heap is damaged in step(); the node of weight_norm() keeps a gain of so many rows for a weight of 32."""
    library = run.parent / run.name / "lib" / "site-packages" / "torch" / "nn" / "utils" / "weight_norm.py"
    library.parent.mkdir(parents=True)
    library.write_text(LIBRARY, encoding="utf-8")
    script = run / "step.py"
    script.write_text(SCRIPT, encoding="utf-8")
    for path in (library, script):
        os.utime(path, (0, 0))
    made = ("Layer.forward", str(script), 10) if own else ("compute", str(library), 5)
    box = Box(pid=101).alloc(G, 4 * rows).alloc(V, 4096).alloc(NORMS, 4 * rows, made if site else None)
    holders = [
        Holder("saved", NODE, base, None, False, distance=at) for base, at in zip(saved, distances, strict=False)
    ]
    frame = PythonFrame("step", str(script), 5)
    if held:
        holders.append(Holder("local", "w", NORMS, frame, True, elements=rows))
    where = CallSite(PythonFrame(*made), None, None, None)
    overruns = (Overrun(Storage(NORMS, 4 * rows, "live", Moment(1, 1, None), where, 101), 0x3F02_00B2_3EFF_3512),)
    how: dict[str, Any] = {"overruns": overruns} if overrun else {}
    return died(
        run, box=box, python=[("step", str(script), 5)], holders=tuple(holders), mappings=[PROGRAM],
        arguments=(tensor(V, 32, 8), tensor(G, rows, 1)) if sizes else (), **DAMAGED, **how,
    )  # fmt: skip


def test_tensors_of_the_node_are_held_against_what_its_operator_takes_for_granted(run: Path) -> None:
    report = of_step(run)
    assert verdict(report) == ("heap-corruption", "certain")
    assert (
        "`g` [1, 1] has 1 element, where _weight_norm_interface at torch/nn/utils/weight_norm.py:5 takes at least 8 "
        "for granted (the last size of `v` [32, 8])"
    ) in summary(report)
    assert "before the module runs" in advice(report)


def test_call_of_the_program_has_its_line(run: Path) -> None:
    assert "where _weight_norm_interface at line 10 takes at least 8 for granted" in summary(of_step(run, own=True))


@pytest.mark.parametrize(
    "how",
    [
        {"rows": 32},
        {"rows": 64},
        {"saved": (G, V)},
        {"saved": (G, V, NORMS, G)},
        {"distances": (1, 1, 2)},
        {"site": False},
        {"sizes": False},
    ],
    ids=["fits", "larger", "two kept", "four kept", "of two nodes", "no line", "no sizes"],
)
def test_node_that_fits_or_is_not_known_is_not_blamed(how: dict[str, Any], run: Path) -> None:
    assert "for granted" not in summary(of_step(run, **{"distances": (1, 1, 1, 1), **how}))


def test_operator_that_made_what_is_overrun_is_the_first_suspect(run: Path) -> None:
    """Where no node keeps its tensors."""
    report = of_step(run, saved=(), overrun=True, own=True)
    assert "; the first suspect is _weight_norm at line 10, which does not check that `self.gain.numel() >=" in summary(
        report
    )
    assert advice(report).startswith("Check that `self.gain.numel() >= self.v.size(0)` where line 10 calls")


def test_result_of_the_operator_is_no_suspicion(run: Path) -> None:
    """A variable holds it: it has the size that is written."""
    assert "suspect is" not in summary(of_step(run, saved=(), overrun=True, own=True, held=True))
