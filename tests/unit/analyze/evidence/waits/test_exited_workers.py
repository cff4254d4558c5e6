"""Workers that ended themselves while their parent waited for what they should have put into a queue."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import advice, finding, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

MP = "/usr/lib/python3.11/multiprocessing"
BEGIN: list[Frame] = [
    ("BaseProcess.run", f"{MP}/process.py", 108),
    ("BaseProcess._bootstrap", f"{MP}/process.py", 314),
    ("main", s.SCRIPT, 11),
]
SOURCE = """def read(item, out):
    if item.rate != 16000:
        {said}
        sys.exit(1)
    return item
def worker(tasks, out):
    while True:
        item = tasks.get()
        try:
            out.put(read(item, out))
        {handler}:
            out.put(None)
def main():
    result = out.get()
"""


def script(run: Path, handler: str = "except Exception", said: str = "log.info('%s is bad', item)") -> str:
    path = run / "train.py"
    path.write_text(SOURCE.replace("{handler}", handler).replace("{said}", said))
    os.utime(path, (0, 0))
    return str(path)


def get(path: str) -> list[Frame]:
    """Where the parent stands."""
    return [("Queue.get", f"{MP}/queues.py", 103), ("main", path, 14)]


def worker(pid: int, number: int) -> Box:
    return Box(pid=pid, ppid=101).at(100).doing("name", f"multiprocessing process Process-{number}")


def left(path: str, pid: int = 102, number: int = 1, at: int = 5_000, status: int = 1) -> Box:
    """One that sys.exit() ended at line 4, below worker()."""
    stack: list[Frame] = [("read", path, 4), ("worker", path, 10), *BEGIN]
    return worker(pid, number).at(at).exit_request(status, stack).exit(status)


@pytest.mark.parametrize("status", [1, 4])
def test_parent_that_asks_workers_which_left_by_exit_waits_for_ever(status: int, run: Path) -> None:
    """The exit, what it passes, and where the parent stands."""
    path = script(run)
    report = ended(run, stopped(parent(), get(path)), left(path, status=status))
    assert verdict(report) == ("hang", "likely")
    assert summary(report).startswith(
        f"Multiprocessing process Process-1 (pid 102) ended itself with exit status {status} by `sys.exit(1)` at "
        "train.py:4 in read, which `except Exception` (line 11) does not catch; process 101 (train.py) still waited in "
        "`out.get()` at train.py:14 in main; no other child was left to fill the queue"
    )
    assert "At line 4 raise an exception" in advice(report)
    assert "where `item.rate != 16000` holds (line 2)" in advice(report)
    assert "exitcode" in advice(report)
    assert "printed" not in advice(report)


def test_workers_that_ended_alike_are_one_finding(run: Path) -> None:
    """Neither is a suspect of its own then."""
    path = script(run)
    report = ended(run, stopped(parent(), get(path)), left(path), left(path, 103, 2, at=6_000))
    assert "Process-1 (pid 102) and multiprocessing process Process-2 (pid 103) ended themselves" in summary(report)
    primary = {item.pid: item.primary for item in report.processes or []}
    assert not primary[102]
    assert not primary[103]


def test_idle_worker_beside_it_fills_nothing(run: Path) -> None:
    """It waits for its next task."""
    path = script(run)
    idle: list[Frame] = [("Queue.get", f"{MP}/queues.py", 103), ("worker", path, 8), *BEGIN]
    report = ended(run, stopped(parent(), get(path)), left(path), stopped(worker(103, 2), idle))
    assert verdict(report) == ("hang", "likely")
    assert "its other children only waited, too" in summary(report)


def test_worker_at_work_may_still_answer(run: Path) -> None:
    """The look-alike: the exit stays an end of its own."""
    path = script(run)
    busy: list[Frame] = [("worker", path, 10), *BEGIN]
    report = ended(run, stopped(parent(), get(path)), left(path), stopped(worker(103, 2), busy))
    assert verdict(report)[0] == "exit"
    assert "still waited" not in summary(report)
    assert finding(report, "standstill") is None


@pytest.mark.parametrize("how", ["with the rest", "in order", "with 0", "not asked"])
def test_worker_that_ended_otherwise_is_not_blamed(how: str, run: Path) -> None:
    """The look-alikes: at the time limit, at the end of its loop, and while the parent did something else."""
    path = script(run)
    child = left(path, at=59_990 if how == "with the rest" else 5_000, status=0 if how == "with 0" else 1)
    child = worker(102, 1).at(5_000).exit(0) if how == "in order" else child
    at = get(path) if how != "not asked" else [("main", path, 14)]
    assert "still waited" not in summary(ended(run, stopped(parent(), at), child))


@pytest.mark.parametrize(
    ("handler", "told"),
    [("except BaseException", False), ("except", False), ("except (ValueError, SystemExit)", False),
     ("except (ValueError, OSError)", False), ("except (Exception,)", True)],
)  # fmt: skip
def test_handler_is_told_only_where_it_cannot_catch_an_exit(handler: str, told: bool, run: Path) -> None:
    """One that caught it has let it go again."""
    path = script(run, handler)
    assert ("does not catch" in summary(ended(run, stopped(parent(), get(path)), left(path)))) is told


def test_line_that_was_printed_before_the_exit_is_told(run: Path) -> None:
    """It may have the input's name."""
    path = script(run, said="print(f'{item}: bad')")
    assert "ine 3 printed or logged" in advice(ended(run, stopped(parent(), get(path)), left(path)))


@pytest.mark.parametrize("passed_on", [True, False])
def test_exit_of_a_spawned_worker_is_that_of_its_target(passed_on: bool, run: Path) -> None:
    """Its main program exits once more by the status that multiprocessing has caught; another status is its own."""
    path = script(run)
    stack: list[Frame] = [("read", path, 4), ("worker", path, 10), *BEGIN[:2], ("spawn_main", f"{MP}/spawn.py", 122)]
    again: list[Frame] = [("spawn_main", f"{MP}/spawn.py", 123), ("<module>", "<string>", 1)]
    child = worker(102, 1).at(5_000).exit_request(4 if passed_on else 3, stack).exit_request(4, again).exit(4)
    assert ("train.py:4 in read" in summary(ended(run, stopped(parent(), get(path)), child))) is passed_on


def test_items_of_a_joined_queue_stay_undone(run: Path) -> None:
    """JoinableQueue.join() waits for task_done() of each."""
    path = script(run)
    join: list[Frame] = [
        ("Condition.wait", f"{MP}/synchronize.py", 268),
        ("JoinableQueue.join", f"{MP}/queues.py", 331),
    ]
    report = ended(run, stopped(parent(), [*join, ("main", path, 14)]), left(path))
    assert "no other child was left to do the rest" in summary(report)
    assert "task_done() in a `finally`" in advice(report)
