"""Exceptions of a pool's tasks that cannot be made again from their pickle: who raised what, and what is to change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
CF = "/usr/lib/python3.11/concurrent/futures/process.py"
RECEIVER: list[Frame] = [
    ("_ConnectionBase.recv", f"{LIB}/connection.py", 251),
    ("Pool._handle_results", f"{LIB}/pool.py", 579),
]
WORKER: Frame = ("worker", f"{LIB}/pool.py", 125)
MISSING = "RowError.__init__() missing 1 required positional argument: 'reason'"
PROGRAM = """class RowError(Exception):
    def __init__(self, row, reason):
        super().__init__(f"row {row}: {reason}")

def load(row):
    raise RowError(row, "empty")

def main(pool):
    return pool.map(load, range(9))
"""


def job(
    run: Path,
    program: str = PROGRAM,
    message: str = MISSING,
    inner: Sequence[Frame] = (),
    raised: str = "RowError",
    put: bool = False,
    error: str = "TypeError",
) -> Report:
    """A pool whose thread for results died below recv(), and a worker that handed an exception over before."""
    script = str(s.program_in(run, program))
    here = [(name, script, line) for name, _, line in inner]
    wait: list[Frame] = [
        ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
        ("ApplyResult.wait", f"{LIB}/pool.py", 765),
        ("main", script, 9),
    ]
    box = parent().at(500).thread_exception(error, message, [*here, *RECEIVER], thread="Thread-3 (_handle_results)")
    box.at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=wait, native=[(s.LIBC, 0x10)])
    worker = Box(pid=102, ppid=101).doing("name", "multiprocessing process ForkPoolWorker-1").at(400)
    worker.exception(raised, "row 4: empty", [("load", script, 6), WORKER], on_its_way="fetch")
    idle: list[Frame] = [
        ("SemLock.__enter__", f"{LIB}/synchronize.py", 95),
        ("SimpleQueue.put" if put else "SimpleQueue.get", f"{LIB}/queues.py", 376),
        WORKER,
    ]
    return ended(run, box, stopped(worker, idle))


@pytest.mark.parametrize("put", [False, True])
def test_error_that_cannot_be_made_again_ended_the_pools_thread(put: bool, run: Path) -> None:
    """Whether the workers wait for their next task, or until a result is taken that nobody takes."""
    report = job(run, put=put)
    assert verdict(report) == ("hang", "likely")
    assert report.verdict is not None and report.verdict.pid == 101
    words = summary(report)
    assert "its thread Thread-3 (_handle_results), which takes the results, had died of TypeError: RowError" in words
    assert "ForkPoolWorker-1 (pid 102) had raised RowError: row 4: empty at program.py:6 in load" in words
    assert "__init__() (line 2) takes `row` and `reason`, and super().__init__() (line 3) gets `f'row" in words
    assert "At line 3, pass on all that __init__() takes: `super().__init__(row, reason)`" in advice(report)
    assert "The program then gets the error itself, RowError: row 4: empty at program.py:6 in load." in advice(report)
    assert "recorded RowError: row 4: empty" in evidence(report)


def test_constructor_that_fails_by_itself_is_known_by_its_line(run: Path) -> None:
    """It is called with the text in place of an object."""
    program = PROGRAM.replace("row, reason):", "row):").replace("{row}: {reason}", "{row.key}")
    report = job(
        run, program, "'str' object has no attribute 'key'", [("RowError.__init__", "", 3)], error="AttributeError"
    )
    assert "had raised RowError: row 4: empty at program.py:6 in load, which cannot be made again" in summary(report)
    assert "`super().__init__(row)` in place of" in advice(report)


def test_parameter_by_name_is_never_in_args(run: Path) -> None:
    """Passing on all by position does not help there."""
    report = job(
        run, PROGRAM.replace("row, reason):", "row, *, reason):"), MISSING.replace("positional", "keyword-only")
    )
    assert "Let __init__() take all by position, `reason` too," in advice(report)


def test_inherited_constructor_is_named_with_its_class(run: Path) -> None:
    """CPython's message has the base's name."""
    program = PROGRAM.replace("def load", "class Empty(RowError):\n    pass\n\ndef load").replace(
        "raise RowError", "raise Empty"
    )
    report = job(run, program, raised="Empty")
    assert "had raised Empty: row 4: empty" in summary(report)
    assert "RowError.__init__() (line 2) takes" in summary(report)


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        ("Box.__new__() missing 1 required positional argument: 'b'", "RowError"),  # a result
        ("Other.__init__() missing 1 required positional argument: 'b'", "RowError"),
    ],
)
def test_other_things_that_cannot_be_loaded_are_not_laid_to_the_exception(message: str, raised: str, run: Path) -> None:
    """The look-alikes: what could not be loaded is not what a task raised."""
    report = job(run, message=message, raised=raised)
    assert "had raised" not in summary(report)
    assert "could not load what a worker had sent" in advice(report)
    assert "killed" not in advice(report)


def test_exception_that_was_handed_over_well_is_not_the_one_that_was_not(run: Path) -> None:
    """The look-alike: the class that could not be made is of something else that a worker sent."""
    report = job(run, raised="ValueError")
    assert "had raised" not in summary(report)
    assert "could not load what a worker had sent, a RowError: __init__() (line 2)" in summary(report)


def broken(run: Path, cause: str | None) -> Report:
    """A pool of concurrent.futures that was called broken; a worker was ended before its parent raised."""
    script = str(s.program_in(run, PROGRAM))
    text = f'Traceback (most recent call last):\n  File "{LIB}/connection.py", line 251, in recv\n    x\n{cause}'
    more = {"remote_traceback": f"'''\n{text}'''"} if cause is not None else {}
    kind = "concurrent.futures.process.BrokenProcessPool"
    worker = Box(pid=102, ppid=101).at(400)
    worker.exception(
        "RowError", "row 4: empty", [("load", script, 6), ("_process_worker", CF, 261)], on_its_way="fetch"
    )
    worker.at(500).signal_seen(15, 101, ["python", "train.py"])
    worker.crash(15, code=0, state=EXIT, python=[("main", script, 9)], native=[(s.LIBC, 0x10)])
    box = Box(pid=101).versions(torch="2.13.0").at(510).wait(102, signal=15).at(520)
    box.exception(kind, "A process in the process pool was terminated abruptly", [("main", script, 9)], **more)
    return build_report(s.load(run, box.exit(1), worker))


def test_pool_that_is_broken_by_an_error_it_could_not_make_is_not_blamed_on_its_worker(run: Path) -> None:
    """concurrent.futures ends its workers itself then, and says that one was terminated abruptly."""
    report = broken(run, f"TypeError: {MISSING}")
    assert verdict(report) == ("python-exception", "certain")
    assert report.verdict is not None and report.verdict.pid == 101
    assert "no worker had died before, and the pool ended them itself" in summary(report)
    assert "had raised RowError: row 4: empty at program.py:6 in load" in summary(report)
    assert "`super().__init__(row, reason)`" in advice(report)


def test_result_that_breaks_a_pool_is_no_exception_of_a_task(run: Path) -> None:
    """Look-alike: what could not be loaded is something else."""
    report = broken(run, "TypeError: Box.__new__() missing 1 required positional argument: 'b'")
    assert "could not load what one had sent (TypeError: Box.__new__() missing" in summary(report)
    assert "had raised" not in summary(report)


@pytest.mark.parametrize("cause", [None, "EOFError", "_pickle.UnpicklingError: pickle data was truncated"])
def test_pool_that_lost_a_worker_is_broken_by_that(cause: str | None, run: Path) -> None:
    """The look-alikes: no reason is given, or the message of the worker was cut short."""
    report = broken(run, cause)
    assert report.verdict is not None and report.verdict.pid == 102
    assert "no worker had died before" not in summary(report)


def test_worker_that_hands_over_a_result_waits_for_no_room(run: Path) -> None:
    """Its parent works, and is not known to be lost; put() of that queue takes no time limit."""
    stack: list[Frame] = [
        ("SemLock.__enter__", f"{LIB}/synchronize.py", 95),
        ("SimpleQueue.put", f"{LIB}/queues.py", 376),
        WORKER,
        ("Popen._launch", f"{LIB}/popen_fork.py", 71),
        ("main", s.SCRIPT, 9),
    ]
    report = ended(run, stopped(parent(), [("main", s.SCRIPT, 9)]), stopped(Box(pid=102, ppid=101), stack))
    assert "waited until another result is taken, to hand over its own;" in summary(report)
    assert "put(timeout" not in advice(report)
    assert "its thread that takes results" in advice(report)


def test_interrupt_of_such_a_wait_names_the_exception_too(run: Path) -> None:
    """Ctrl-C is how most people end it."""
    script = str(s.program_in(run, PROGRAM))
    wait: list[Frame] = [
        ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
        ("ApplyResult.wait", f"{LIB}/pool.py", 765),
        ("main", script, 9),
    ]
    box = parent().at(500).thread_exception("TypeError", MISSING, RECEIVER, thread="Thread-3 (_handle_results)")
    box.at(9_000).signal_seen(2, 0).exception("KeyboardInterrupt", "", wait)
    worker = Box(pid=102, ppid=101).at(400)
    worker.exception("RowError", "row 4: empty", [("load", script, 6), WORKER], on_its_way="fetch")
    report = build_report(s.load(run, box.exit(130), worker.at(9_010).exit(0)))
    assert verdict(report)[0] == "external-kill"
    assert "had raised RowError: row 4: empty at program.py:6 in load" in summary(report)
    assert "`super().__init__(row, reason)`" in advice(report)


@pytest.mark.parametrize(("name", "named"), [("reason", True), ("size", False)])
def test_message_without_a_class_is_known_by_the_parameters_that_it_lacks(name: str, named: bool, run: Path) -> None:
    """CPython 3.9. The look-alike: the constructor of a result, beside an exception that was handed over well."""
    report = job(run, message=f"__init__() missing 1 required positional argument: '{name}'")
    assert ("had raised RowError" in summary(report)) == named
