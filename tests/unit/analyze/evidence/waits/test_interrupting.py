"""A lock that a signal handler takes again in the thread that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import below, parent, stopped

WAITS = ["__futex_abstimed_wait_common", "PyThread_acquire_lock_timed", "lock_PyThread_acquire_lock"]
PROGRAM = """\
class Metrics:
    def __init__(self, every):
        self.lock = threading.Lock()
        signal.signal(signal.SIGALRM, self.on_timer)

    def log(self, row):
        with self.lock:
            self.rows.append(summed(row))

    def flush(self):
        with self.lock:
            write(self.rows)

    def on_timer(self, number, frame):
        self.flush()
"""


def interrupted(run: Path, source: str = PROGRAM, *, times: int = 1) -> Report:
    where = str(s.program_in(run, source))
    handler = [("Metrics.flush", where, 11), ("Metrics.on_timer", where, 15)]
    native = [(name, s.LIBC if "futex" in name else s.PYTHON) for name in [*WAITS, "_PyEval_EvalFrameDefault"]]
    frames = [*handler * times, ("Metrics.log", where, 8), ("main", where, 40)]
    return below(run, stopped(parent(), frames), native=native)


@pytest.mark.parametrize("times", [1, 60])
def test_handler_that_takes_the_lock_of_what_it_interrupted_is_told(times: int, run: Path) -> None:
    """Also where the signal came again and again meanwhile."""
    found = interrupted(run, times=times)
    assert verdict(found) == ("hang", "likely")
    assert "the same thread was inside of `with self.lock` (line 7) already: there, at line 8, SIGALRM came" in (
        summary(found)
    )
    assert "and its handler Metrics.on_timer (line 4) takes it again" in summary(found)
    assert advice(found).startswith("Take no lock in Metrics.on_timer")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("summed(row)", "self.on_timer(0, None)"),  # the program calls it itself
        ("        signal.signal(signal.SIGALRM, self.on_timer)\n", "        every(self.on_timer)\n"),
    ],
)
def test_function_that_no_signal_runs_is_no_handler(old: str, new: str, run: Path) -> None:
    """The look-alikes: the lock is taken again all the same."""
    found = interrupted(run, PROGRAM.replace(old, new))
    assert "came, and its handler" not in summary(found)
    assert advice(found).startswith("A Lock is not reentrant")


SHARED = """\
def decode(path):
    with LOCK:
        return normalise(path)

def normalise(path):
    with LOCK:
        return path
"""


def test_lock_of_processes_that_a_thread_takes_again_is_told(run: Path) -> None:
    """Its methods are Python's, below which the thread waits; no signal came."""
    where = str(s.program_in(run, SHARED))
    semaphore = ("SemLock.__enter__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 95)
    native = ["__new_sem_wait_slow64", "_multiprocessing_SemLock_acquire_impl", "_PyEval_EvalFrameDefault"]
    frames = [semaphore, ("normalise", where, 6), ("decode", where, 3), ("main", where, 40)]
    images = [(name, s.LIBC if "wait" in name else s.PYTHON) for name in native]
    found = below(run, stopped(parent(), frames), native=images)
    assert "the same thread was inside of `with LOCK` (line 2) already" in summary(found)
    assert advice(found).startswith("A Lock is not reentrant: leave the `with` of line 2")
