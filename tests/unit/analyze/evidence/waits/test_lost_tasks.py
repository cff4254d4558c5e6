"""A worker of a multiprocessing pool that ended inside of a task, and workers that end as a pool means them to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

POOL = "/usr/lib/python3.11/multiprocessing/pool.py"
QUEUES = "/usr/lib/python3.11/multiprocessing/queues.py"
MAP: list[Frame] = [("Event.wait", "/usr/lib/python3.11/threading.py", 629), ("MapResult.wait", POOL, 765)]
WAITS: list[Frame] = [*MAP, ("main", s.SCRIPT, 12)]
IDLE: list[Frame] = [("SimpleQueue.get", QUEUES, 365), ("worker", POOL, 114), ("main", s.SCRIPT, 11)]
BUSY: list[Frame] = [("load", s.SCRIPT, 30), ("mapstar", POOL, 48), ("worker", POOL, 125), ("main", s.SCRIPT, 11)]


def worker(pid: int, number: int, later: int = 0, name: str = "ForkPoolWorker") -> Box:
    """One that the pool of process 101 has started, so many seconds after it began itself."""
    box = Box(pid=pid, ppid=101, created_ns=(5 + later) * 10**9)
    return box.at(100).doing("name", f"multiprocessing process {name}-{number}")


def left(status: int = 1, at: int = 5_000, stack: list[Frame] = BUSY, name: str = "ForkPoolWorker") -> Box:
    """One that sys.exit() ended in a task."""
    return worker(102, 1, name=name).at(at).exit_request(status, stack).exit(status)


@pytest.mark.parametrize("status", [0, 1])
def test_worker_that_ended_itself_leaves_its_pool_waiting(status: int, run: Path) -> None:
    """The others idle: nothing can come any more."""
    report = ended(run, stopped(parent(), WAITS), left(status), stopped(worker(103, 2), IDLE))
    assert verdict(report) == ("hang", "likely")
    assert f"its worker ForkPoolWorker-1 (pid 102) had ended itself with exit status {status} at" in summary(report)
    assert ", 55.000 s before the signal, and a pool" in summary(report)
    assert "a pool never gets the result of a task whose worker has ended" in summary(report)
    assert "At line 30 raise an exception" in advice(report)
    assert "only slow" not in advice(report)


def test_worker_at_work_leaves_it_open_what_the_wait_is_for(run: Path) -> None:
    """The lost task may be another one."""
    report = ended(run, stopped(parent(), WAITS), left(), stopped(worker(103, 2, later=1), BUSY))
    assert verdict(report) == ("hang", "possible")
    assert "had ended itself with exit status 1" in summary(report)


def test_join_of_a_pool_waits_for_lost_tasks_too(run: Path) -> None:
    """After close(), join() returns when all results are there."""
    join: list[Frame] = [("Thread.join", "/usr/lib/python3.11/threading.py", 1119), ("Pool.join", POOL, 665)]
    report = ended(run, stopped(parent(), [*join, ("main", s.SCRIPT, 13)]), left(), stopped(worker(103, 2), IDLE))
    assert verdict(report) == ("hang", "likely")
    assert "had ended itself with exit status 1" in summary(report)


@pytest.mark.parametrize(
    "other",
    [
        worker(102, 1).at(5_000).exit(0),  # maxtasksperchild
        left(name="ForkProcess"),  # no worker of a pool
        left(at=59_900),  # it ended with the rest
    ],
    ids=["by design", "a process", "at the end"],
)
def test_worker_that_the_pool_ends_has_lost_nothing(other: Box, run: Path) -> None:
    """The look-alikes."""
    report = ended(run, stopped(parent(), WAITS), other, stopped(worker(103, 2, later=1), BUSY))
    assert "a pool never gets" not in summary(report)
    assert "raise an exception" not in advice(report)


def test_worker_of_a_pool_that_was_left_is_not_of_this_one(run: Path) -> None:
    """The look-alike: the workers beside it were ended by their parent before this pool was made."""
    beside = worker(104, 2).at(7_000).signal_seen(15, 101, ["python", "train.py"]).exit(0)
    report = ended(run, stopped(parent(), WAITS), left(), beside, stopped(worker(105, 3, later=9), BUSY))
    assert "a pool never gets" not in summary(report)


def test_idle_worker_is_not_said_to_be_at_work(run: Path) -> None:
    """Its line of the program is where the pool was made."""
    report = ended(run, stopped(parent(), WAITS), stopped(worker(103, 2), IDLE))
    assert "its child" not in summary(report)
    assert "only slow" not in advice(report)


def test_worker_that_a_signal_ended_is_the_cause_and_the_wait_is_beside_it(run: Path) -> None:
    """The fault is the verdict; that the pool waits on is the second trouble."""
    killed = worker(102, 1).at(5_000).crash(11, python=BUSY, native=[(s.LIBC, 0x10)])
    report = ended(run, stopped(parent(), WAITS), killed, stopped(worker(103, 2), IDLE))
    assert report.verdict is not None and report.verdict.pid == 102
    assert any(
        "its worker ForkPoolWorker-1 (pid 102) had died of SIGSEGV" in (item.summary or "")
        for item in report.findings or []
    )


FAIL = """def fail(message):
    {said}
    sys.exit(2)
def load(row):
    if row.rate not in RATES:
        fail(f"{row.name}: unsupported")
"""


@pytest.mark.parametrize(
    ("said", "named"),
    [('print(f"prepare: {message}")', True), ("logger.error('%s is bad', message)", True), ("close(message)", False)],
)
def test_what_was_printed_before_the_end_names_the_input(said: str, named: bool, run: Path) -> None:
    """The values of its variables are not recorded; the line just before may have written them."""
    script = run / "train.py"
    script.write_text(FAIL.replace("{said}", said))
    os.utime(script, (0, 0))
    stack: list[Frame] = [("fail", str(script), 3), ("load", str(script), 6), *BUSY[1:]]
    report = ended(run, stopped(parent(), WAITS), left(stack=stack), stopped(worker(103, 2), IDLE))
    assert ("ine 2 printed or logged `" in advice(report)) == named
    assert "find the input for which it does" in advice(report)
