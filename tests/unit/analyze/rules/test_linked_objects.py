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
    assert "pickle calls itself for each object that an object holds (line 9 may add one, held by `Step.next`)" in told


JOBS = """class Job:
    def __init__(self, name):
        self.name, self.needed = name, []
    def after(self, *jobs):
        self.needed.extend(jobs)
        return self
class Plan:
    def submit(self, name):
        job = Job(name).after(self.last)
        self.last = job
        return job
    def save(self, path):
        torch.save({"model": self.model, "jobs": self.last}, path)
"""


def test_object_that_a_method_gives_the_one_before(run: Path) -> None:
    """With the attribute in the headline, and the entry of the dict that has the chain."""
    report = overflow(run, JOBS)
    assert "(line 9 may add one, held by `Job.needed`)" in summary(report)
    said = advice(report)
    assert "line 9 may add one each time that submit() runs: `job = Job(name).after(self.last)`, each held by" in said
    assert "leave `needed` out (`Job.__getstate__`)" in said
    assert "Line 13 passes the last of them (`self.last`) as entry 'jobs'." in said
    other = advice(overflow(run, JOBS.replace('"jobs": self.last', '"jobs": self.all')))
    assert "each held by `Job.needed`" in other and "the last of them" not in other


def test_several_links_are_named_together(run: Path) -> None:
    """Which of them made it so deep is not known; the look-alike links nothing."""
    more = "    def again(self, old):\n        new = Job(2).after(self.first)\n        self.first = new\n"
    said = advice(overflow(run, JOBS + more))
    assert "is nested too deep for the stack: its objects may be linked by `Job.needed` (line 9 or line 15). K" in said
    assert "leave `needed` out (`Job.__getstate__`)" in said
    none = advice(overflow(run, JOBS.replace("self.last = job", "self.n = len(job.needed)")))
    assert "may be linked" not in none and "is nested too deep for the stack. Keep the objects" in none
