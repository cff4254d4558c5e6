"""A chain of objects that pickle follows by an attribute: the line that links them, also where a list has them all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict

LOW, HIGH = 0x7FFC_0000_0000, 0x7FFC_0080_0000
PICKLE = "/usr/lib/python3.11/lib-dynload/_pickle.cpython-311-x86_64-linux-gnu.so"
REPLAY = """class Step:
    __slots__ = ("state", "next")
    def __init__(self, state):
        self.state, self.next = state, None
class Replay:
    def add(self, state, ends):
        step = Step(state)
        if self.last is not None:
            self.last.next = step
        self.last = None if ends else step
        self.steps.append(step)
def save(agent):
    torch.save({"net": agent.net.state_dict(), "steps": agent.replay.steps}, "a.pt")
"""


def overflow(run: Path, source: str, leaf: str = "save") -> Report:
    """Of a stack that pickle filled from line 13; `leaf` met its end."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    report = died(
        run, addr=LOW - 8, code=2, stack=(LOW, HIGH), mappings=[PROGRAM, (LOW, HIGH, "rw-p", 0, "[stack]")],
        error_code=6, native_total=90_000, registers={"rsp": LOW + 16, "trapno": 14}, sp=LOW + 16,
        python=[("save", str(file), 13)],
        stack_of=[(PICKLE, leaf), *([(PICKLE, "save"), (PICKLE, "save_dict")] * 50), (s.PYTHON, "_PyEval_EvalFrame")],
    )  # fmt: skip
    assert verdict(report)[0] == "stack-overflow"
    return report


def test_objects_of_a_list_that_lead_to_each_other_are_unlinked(run: Path) -> None:
    """A flat list is no advice for what is in one; the next one is chosen by a condition."""
    said = advice(overflow(run, REPLAY))
    assert "line 9 may add one each time that it runs: `self.last.next = step`, each held by `Step.next`. " in said
    assert "Line 11 (`self.steps.append(step)`) keeps them in a list already: leave `next` out (`Step.__get" in said
    assert "Keep the objects in a flat list" not in said
    alone = advice(overflow(run, REPLAY.replace("self.steps.append(step)", "self.count += 1")))
    assert "Keep the objects in a flat list, or leave `next` out (`Step.__getstate__`)" in alone
    other = advice(overflow(run, REPLAY.replace("self.last.next", "self.last.state.next")))
    assert "may add one" not in other and "and a part of `agent`, which line 13 passes, is nested" in other


@pytest.mark.parametrize(("leaf", "named"), [("lookup_unicode", False), ("save", True)])
def test_function_that_met_the_end_is_named_only_where_it_repeats(leaf: str, named: bool, run: Path) -> None:
    told = summary(overflow(run, REPLAY, leaf))
    assert (f"end of its stack in {leaf}" in told) == named, told
    assert "pickle calls itself for each object that an object holds (line 9 may add one)" in told
