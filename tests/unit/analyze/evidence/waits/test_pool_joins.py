"""The end of a pool of processes waits for its workers: one of them that stands still is the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Box, Frame

PYTHON = "/usr/lib/python3.11"
GOMP = f"{s.TORCH}/lib/libgomp.so.1"
FILL: list[tuple[str, int]] = [(GOMP, 0x1000), (GOMP, 0x1010), (s.TORCH_CPU, 0x9900)]
JOIN: list[Frame] = [
    ("Thread._wait_for_tstate_lock", f"{PYTHON}/threading.py", 1139),
    ("Thread.join", f"{PYTHON}/threading.py", 1119),
]
MAIN: Frame = ("main", s.SCRIPT, 12)
OF_POOL: list[Frame] = [*JOIN, ("Pool.join", f"{PYTHON}/multiprocessing/pool.py", 665), MAIN]
TERMINATED: list[Frame] = [*JOIN, ("Pool._terminate_pool", f"{PYTHON}/multiprocessing/pool.py", 700), MAIN]
EXECUTOR = f"{PYTHON}/concurrent/futures/process.py"
OF_EXECUTOR: list[Frame] = [
    *JOIN,
    ("ProcessPoolExecutor.shutdown", EXECUTOR, 851),
    ("Executor.__exit__", f"{PYTHON}/concurrent/futures/_base.py", 647),
    MAIN,
]
AT_EXIT: list[Frame] = [*JOIN, ("_python_exit", EXECUTOR, 100), ("_shutdown", f"{PYTHON}/threading.py", 1583)]
OF_THREAD: list[Frame] = [*JOIN, MAIN]


def worker() -> Box:
    """A copy of its parent: it has an entry from before its own start."""
    return Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")


@pytest.mark.parametrize("stack", [OF_POOL, OF_EXECUTOR, AT_EXIT], ids=["pool", "executor", "end"])
def test_end_of_a_pool_leads_to_the_worker_that_waits(stack: list[Frame], run: Path) -> None:
    """For OpenMP threads that its parent alone has."""
    report = ended(run, stopped(parent(), stack), stopped(worker(), [("foo", s.SCRIPT, 6)], FILL))
    assert verdict(report) == ("hang", "likely")
    assert "Process 102 (train.py) waited in the OpenMP runtime of a forked child" in summary(report)
    assert "threading.py" not in summary(report)


def test_workers_that_compute_may_be_slow(run: Path) -> None:
    """The look-alike: they wait for nothing."""
    report = ended(run, stopped(parent(), OF_POOL), stopped(worker(), [("foo", s.SCRIPT, 6)], [(s.TORCH_CPU, 0x9900)]))
    assert verdict(report) == ("hang", "possible")
    assert "waited for the workers of a process pool at train.py:12 in main" in summary(report)
    assert "was at train.py:6 in foo" in summary(report)


@pytest.mark.parametrize("stack", [OF_THREAD, TERMINATED], ids=["thread", "terminate"])
def test_join_of_another_thread_waits_for_no_worker(stack: list[Frame], run: Path) -> None:
    """The look-alikes: a thread of the program; terminate() ends the workers."""
    report = ended(run, stopped(parent(), stack), stopped(worker(), [("foo", s.SCRIPT, 6)], FILL))
    assert "workers of a process pool" not in summary(report) + advice(report)


def test_workers_of_a_thread_pool_are_no_processes(run: Path) -> None:
    """The look-alike: ThreadPool is derived from Pool."""
    pool = f"{PYTHON}/multiprocessing/pool.py"
    rest: dict[int, list[Frame]] = {5: [("Pool._handle_workers", pool, 522)], 6: [("worker", pool, 125)]}
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=OF_POOL, other_python=rest, native=[(s.LIBC, 0x10)])
    assert "waited for a thread at train.py:12 in main" in summary(ended(run, box))


def test_pool_that_receives_no_results_does_not_end(run: Path) -> None:
    """Its thread that receives them has ended, while those that hand out tasks run."""
    pool = f"{PYTHON}/multiprocessing/pool.py"
    rest: dict[int, list[Frame]] = {5: [("Pool._handle_workers", pool, 522)], 6: [("Pool._handle_tasks", pool, 531)]}
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=OF_POOL, other_python=rest, native=[(s.LIBC, 0x10)])
    assert "the pool's thread that receives results had ended" in summary(ended(run, box))
