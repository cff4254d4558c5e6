"""python-exception: a check that workers still run, and the exception that one of them had caught and printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Box

WORKERS = """\
def fill(loader, out, stop):
    try:
        while not stop.is_set():
            out.put(loader.make())
    except Exception:
        traceback.print_exc()
        stop.set()

def serve(loader, out):
    while True:
        try:
            out.put(loader.make())
        except ValueError:
            traceback.print_exc()

class Batches:
    def __next__(self):
        if self.stop.is_set() or not all(p.is_alive() for p in self.workers):
            raise RuntimeError("workers are gone")
        return self.queue.get()
"""
RAISES = ("Batches.__next__", 19)


def job(run: Path, *, source: str = WORKERS, caught: tuple[str, int] | None = ("fill", 4), signal: int = 0) -> Report:
    """A worker that caught an exception below `caught`, and ended well, or by `signal`, before the check failed."""
    program = str(s.program_in(run, source))
    main = (
        Box(pid=101, ppid=90)
        .versions(torch="2.13.0")
        .at(8_000)
        .wait(102, exit_code=None if signal else 0, signal=signal or None)
        .at(9_000)
    )
    main.exception("RuntimeError", "workers are gone", [(RAISES[0], program, RAISES[1])]).exit(1)
    worker = Box(pid=102, ppid=101).at(2_000).doing("name", "multiprocessing process Process-1").at(5_000)
    if caught is not None:
        stack = [("Loader.make", f"{run}/data.py", 12), (caught[0], program, caught[1])]
        worker.exception("ValueError", "bad row 7", stack, on_its_way="print")
    return build_report(s.load(run, main, worker if signal else worker.at(7_900).exit(0)))


def test_exception_that_a_worker_printed_is_the_reason(run: Path) -> None:
    found = job(run)
    assert verdict(found) == ("python-exception", "certain")
    assert (
        "program.py:19 in Batches.__next__: multiprocessing process Process-1 (pid 102) had failed before with "
        "ValueError: bad row 7 at data.py:12 in Loader.make, which it caught and printed"
    ) in summary(found)
    assert advice(found).startswith("Begin with that exception of multiprocessing process Process-1 (pid 102),")
    assert "Correct the one" not in advice(found)


def test_worker_that_goes_on_after_what_it_printed_is_no_reason(run: Path) -> None:
    """The look-alike: it tries again."""
    found = job(run, caught=("serve", 12))
    assert "bad row 7" not in summary(found) and "bad row 7" not in advice(found)


def test_exception_that_is_not_recorded_is_looked_for_where_the_source_catches_it(run: Path) -> None:
    """Recordings of before, or a worker that prints nothing."""
    found = job(run, caught=None)
    assert "which it caught" not in summary(found)
    assert (
        "(line 18) only tells that a worker has ended or asked to stop: the `except` of line 5 catches its"
        in advice(found)
    )
    assert "sets that (line 7)" in advice(found)


@pytest.mark.parametrize(
    "check", ["not self.worker.is_alive()", "self.worker.exitcode", "any(p.exitcode for p in self.workers)"]
)
def test_any_check_of_workers_is_told_alike(check: str, run: Path) -> None:
    whole = "self.stop.is_set() or not all(p.is_alive() for p in self.workers)"
    found = job(run, source=WORKERS.replace(whole, check), caught=("fill", 4))
    assert "had failed before with ValueError: bad row 7" in summary(found)


def test_check_of_a_value_is_not_about_workers(run: Path) -> None:
    """The look-alike: a worker had printed an exception, too."""
    whole = "self.stop.is_set() or not all(p.is_alive() for p in self.workers)"
    found = job(run, source=WORKERS.replace(whole, "self.rows < 3"))
    assert "bad row 7" not in summary(found)


def test_worker_that_a_signal_ended_before_is_not_told_by_what_it_printed(run: Path) -> None:
    """The look-alike: SIGKILL ended it."""
    found = job(run, signal=9)
    assert "bad row 7" not in summary(found) and "bad row 7" not in advice(found)
