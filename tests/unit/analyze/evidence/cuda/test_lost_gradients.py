"""zero_grad() between the capture of a backward pass and its replays."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Box

DEVICE, MIB = 0x7F60_0000_0000, 1 << 20
POOL = (1, 0)
SOURCE = """\
def main():
    with torch.cuda.graph(graph):
        loss(model).backward()
    optimizer.zero_grad()
    graph.replay()
    optimizer.step()
    if losses[-1] > losses[0]:
        raise RuntimeError("the loss does not go down")
"""
OPTIMIZER = ("Optimizer.zero_grad", f"{s.TORCH}/optim/optimizer.py", 1066)


def checked(
    run: Path,
    *,
    pool: tuple[int, int] = POOL,
    replays_on: bool = True,
    steps_on: bool = True,
    by: tuple[str, str, int] = OPTIMIZER,
) -> Report:
    """A check of the program's own failed after a graph was captured, its gradient was freed, and it was replayed."""
    program = str(s.program_in(run, SOURCE))
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE, 20 * MIB, pool=pool)
    box.devices.alloc(DEVICE, 4096, box.node("AccumulateGrad"), box.epoch, pool=pool)
    captured, capture = box.later(5).now, box.code("main", program, 2)
    box.step(1).later(5)
    box.devices.free(DEVICE, box.site(by, ("main", program, 4)), box.epoch, awaited=True)
    freed = box.later(5).now
    if steps_on:
        box.step(20)
    box.devices.graph(1, capture, replays=9, captured_ns=captured, replayed_ns=freed if replays_on else captured + 1)
    box.later(500).exception("RuntimeError", "the loss does not go down", [("main", program, 8)]).exit(1)
    return build_report(s.load(run, box, launcher={"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}))


def test_gradients_that_a_graph_fills_and_no_parameter_has(run: Path) -> None:
    """Beside the check that failed: what took them off, the graph, and its replay."""
    report = checked(run)
    assert verdict(report) == ("python-exception", "certain")
    assert (
        "; before, zero_grad() at program.py:4 in main took 1 gradient off the parameters, in memory of the CUDA graph "
        "that was captured at program.py:2 in main: the graph, replayed at program.py:5, still writes there"
    ) in summary(report)
    assert advice(report).startswith(
        "If the check is about what was trained: leave out the zero_grad() at program.py:4, since a replay overwrites"
    )


@pytest.mark.parametrize(
    "more",
    [{"pool": (0, 0)}, {"replays_on": False}, {"steps_on": False}],
    ids=["not of the graph", "not replayed since", "no step since"],
)
def test_gradients_that_nobody_misses(run: Path, more: dict[str, bool]) -> None:
    """The look-alikes: those of the warm-up, the end of the training, a step inside the graph."""
    report = checked(run, **more)  # type: ignore[arg-type]
    assert "zero_grad() at" not in summary(report) + advice(report)


def test_other_memory_of_the_graph_is_no_gradient(run: Path) -> None:
    """The look-alike: the program drops an output."""
    assert "zero_grad() at" not in summary(checked(run, by=("drop", s.SCRIPT, 9)))
