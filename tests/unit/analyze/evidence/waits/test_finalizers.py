"""A lock that `__del__` takes again in the thread that holds it, and who called that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import below, parent, stopped

WAITS = ["__futex_abstimed_wait_common", "PyThread_acquire_lock_timed", "lock_PyThread_acquire_lock"]
EVALUATES = "_PyEval_EvalFrameDefault"
COLLECTED = ["slot_tp_finalize", "finalize_garbage", "gc_collect_main", "gc_collect_generations"]
DROPPED = ["slot_tp_finalize", "PyObject_CallFinalizerFromDealloc", "subtype_dealloc", "insertdict"]
PROGRAM = """import threading
class Pool:
    def __init__(self):
        self.lock = threading.Lock()
    def give_back(self, block):
        with self.lock:
            self.free.append(block)
    def report(self):
        with self.lock:
            return [{{"block": item}} for item in self.free]
class Block:
    def __init__(self, pool):
        self.pool = pool
        {cycle}
    def close(self):
        self.pool.give_back(self)
    def __del__(self):
        self.close()
class {other}:
    def count(self, pool):
        with self.lock:
            return make(pool)
"""
CYCLE = "self.at_end = [self.close]"


def ended_in(
    run: Path, called: Sequence[str], *, cycle: str = CYCLE, finalizer: str = "Block.__del__", other: str = "Other"
) -> Report:
    script = run / "train.py"
    script.write_text(PROGRAM.format(cycle=cycle, other=other))
    os.utime(script, (0, 0))
    where = str(script)
    above = [("Pool.report", where, 10)] if other == "Other" else [(f"{other.partition('(')[0]}.count", where, 22)]
    frames = [("Pool.give_back", where, 6), ("Block.close", where, 16), (finalizer, where, 18), *above]
    native = [(name, s.LIBC if "futex" in name else s.PYTHON) for name in [*WAITS, EVALUATES, *called, EVALUATES]]
    return below(run, stopped(parent(), [*frames, ("main", where, 40)]), native=native)


def test_collector_that_runs_inside_of_the_lock_is_told(run: Path) -> None:
    """Who called `__del__`, at which line, the cycle that leaves the object to the collector, and both ways out."""
    report = ended_in(run, COLLECTED)
    assert verdict(report) == ("hang", "likely")
    assert (
        "waited for the lock `self.lock` at train.py:6 in Pool.give_back; the same thread was inside of `with "
        "self.lock` (line 9) already: there the garbage collector ran, at line 10, and called Block.__del__ (line 18), "
        "which takes it again" in summary(report)
    )
    assert "Take no lock in Block.__del__: the garbage collector runs it in the middle of anything" in advice(report)
    assert "make `self.lock` a threading.RLock (line 4)" in advice(report)
    assert f"Line 14 (`{CYCLE}`) makes a cycle" in advice(report)


@pytest.mark.parametrize(
    ("called", "words"),
    [
        (DROPPED, "there line 10 dropped the last reference to an object, so Python called Block.__del__ (line 18)"),
        ([], "there, at line 10, Python called Block.__del__ (line 18)"),
        ([*DROPPED, *COLLECTED], "there line 10 dropped the last reference"),  # the collector ran further out
    ],
)
def test_other_way_to_a_finalizer_is_no_collection(called: Sequence[str], words: str, run: Path) -> None:
    """The last reference of an object goes inside of the lock; or the frames of the interpreter have no names."""
    report = ended_in(run, called)
    assert words in summary(report)
    assert "collector" not in summary(report) + advice(report)
    assert "cycle" not in advice(report)
    assert "Take no lock in Block.__del__" in advice(report)


@pytest.mark.parametrize(
    ("cycle", "told"),
    [
        ("self.at_end = lambda: self.close()", True),
        ("self.steps['end'] = functools.partial(self.close)", True),
        ("self.me = (pool, self)", True),
        ("self.end = self.close()", False),  # the result of a call
        ("self.owner = Owner(self)", False),  # may keep it or not
        ("at_end = [self.close]", False),
        ("self.at_end = lambda self: self.close()", False),
        ("self.at_end = [self.pool]", False),
    ],
)
def test_cycle_is_named_where_the_class_makes_one(cycle: str, told: bool, run: Path) -> None:
    """The look-alikes put nothing into the object that surely holds it."""
    report = ended_in(run, COLLECTED, cycle=cycle)
    assert "the garbage collector ran" in summary(report)
    assert ("makes a cycle" in advice(report)) == told


def test_lock_that_a_method_takes_again_has_no_finalizer(run: Path) -> None:
    """The look-alike: an ordinary function in the place of `__del__`, below a collection that came to nothing."""
    report = ended_in(run, [], finalizer="Block.end")
    assert "the same thread was inside of `with self.lock` (line 9) already; SIGTERM" in summary(report)
    assert "leave the `with` of line 9" in advice(report)


@pytest.mark.parametrize(("other", "one"), [("Ledger", False), ("Ledger(Pool)", True)])
def test_attribute_of_another_class_is_another_lock(other: str, one: bool, run: Path) -> None:
    """`self.lock` of a Ledger, and that of a Pool; a Ledger that is a Pool has the same."""
    report = ended_in(run, COLLECTED, other=other)
    assert "waited for the lock `self.lock`" in summary(report)
    assert ("the same thread was inside of" in summary(report)) == one


OWN = """import threading
class Clip:
    {shared}
    def __init__(self):
        {each}
    def report(self):
        with self.lock:
            return [{{"clip": item}} for item in self.free]
    def free_slot(self):
        with self.lock:
            self.free.pop()
    def __del__(self):
        self.free_slot()
        with self.lock:
            self.free = []
"""


@pytest.mark.parametrize(
    ("shared", "each", "one"),
    [
        ("slots = 4", "self.lock = threading.Lock()", False),
        ("lock = threading.Lock()", "self.free = []", True),
    ],
    ids=["one each", "one of all"],
)
@pytest.mark.parametrize("inner", [[], [("Clip.free_slot", 10)]], ids=["itself", "below it"])
def test_object_that_is_finalized_is_not_the_one_whose_method_runs(
    shared: str, each: str, one: bool, inner: list[tuple[str, int]], run: Path
) -> None:
    """`self.lock` of the dying clip is another lock than that of the clip whose method Python was in."""
    script = run / "train.py"
    script.write_text(OWN.format(shared=shared, each=each))
    os.utime(script, (0, 0))
    lines = [*inner, ("Clip.__del__", 13 if inner else 14), ("Clip.report", 8), ("main", 40)]
    frames = [(name, str(script), line) for name, line in lines]
    native = [(name, s.LIBC if "futex" in name else s.PYTHON) for name in [*WAITS, EVALUATES, *COLLECTED, EVALUATES]]
    report = below(run, stopped(parent(), frames), native=native)
    assert "waited for the lock `self.lock`" in summary(report)
    assert ("the same thread was inside of" in summary(report)) == one
