"""Graphs that were replayed after an input was freed: what headlines and advice say, and when they say nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.deaths import advice, finding, summary, verdict
from tests.support.synth import Box

DEVICE = 0x7F60_0000_0000
MIB = 1 << 20
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"


def replayed(*, mapped: bool, line: int | None = 30) -> Box:
    """A graph was replayed twice after its input was freed; `mapped`: the allocator still has that memory."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE if mapped else DEVICE + (1 << 30), 20 * MIB)
    box.devices.graph(1, box.code("capture", s.SCRIPT, 17), replays=3, broken=2, captured_ns=box.now)
    made, freed = box.code("load", s.SCRIPT, 35), box.code("run", s.SCRIPT, 27)
    box.devices.graph_input(1, DEVICE, 4 * MIB, by=(made.id, made.where), freed_by=(freed.id, freed.where))
    if line is not None:
        box.graph_replay(1, "serve", s.SCRIPT, line)
        box.graph_replay(1, "later", s.SCRIPT, line + 1)
    return box


def ended(run: Path, box: Box, kind: str, message: str) -> Any:
    box.at(500).exception(kind, message, [("step", s.SCRIPT, 40)]).exit(1)
    return build_report(s.load(run, box, launcher={"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}))


def test_illegal_access_names_the_graph_whose_input_is_no_longer_mapped(run: Path) -> None:
    """With the line that replayed it first."""
    report = ended(run, replayed(mapped=False), "torch.AcceleratorError", ILLEGAL)
    words = summary(report)
    assert "replayed CUDA graph 1, captured at train.py:17 in capture, 2 times, first at train.py:30 in serve" in words
    assert "allocated at train.py:35 in load, freed at train.py:27 in run) had been freed, and the driver" in words
    assert "Keep the tensor of 4.0 MiB that is allocated at train.py:35 in load alive" in advice(report)


def test_memory_that_is_still_mapped_causes_no_illegal_access_by_itself(run: Path) -> None:
    """The graph is a finding beside it, no part of the headline."""
    report = ended(run, replayed(mapped=True), "torch.AcceleratorError", ILLEGAL)
    assert "CUDA graph" not in summary(report)
    beside = finding(report, "cuda-graph-input-freed")
    assert beside is not None and "2 times, first at train.py:30 in serve, after an input" in (beside.summary or "")


def test_check_of_the_program_names_the_broken_graph_as_a_possible_reason(run: Path) -> None:
    """The verdict stays the exception."""
    report = ended(run, replayed(mapped=True, line=None), "AssertionError", "stale scores")
    assert verdict(report) == ("python-exception", "certain")
    assert "; before, the process replayed CUDA graph 1, captured at train.py:17 in capture, 2 times" in summary(report)
    assert advice(report).startswith("If the check is about what the graph computed: keep the tensor of 4.0 MiB")


@pytest.mark.parametrize("kind", ["KeyError", "FileNotFoundError"])
def test_other_exceptions_do_not_speak_of_graphs(run: Path, kind: str) -> None:
    """A missing key has nothing to do with what a graph computed."""
    report = ended(run, replayed(mapped=True), kind, "'x'")
    assert "CUDA graph" not in summary(report) and "graph" not in advice(report)
