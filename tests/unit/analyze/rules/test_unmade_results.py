"""Exceptions that a pool's task returned, and that cannot be made again: whose they are, and what is to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Box, Frame
from tests.unit.analyze.rules.test_unmade_errors import CF, LIB, RECEIVER, WORKER

MISSING = "RowError.__init__() missing 2 required positional arguments: 'row' and 'why'"
PROGRAM = """class RowError(ValueError):
    def __init__(self, path, row, why):
        super().__init__(f"{path}:{row}: {why}")

def load(path):
    try:
        return path, read(path)
    except RowError as problem:
        return path, problem

def main(pool):
    heads = dict(pool.map(head, range(9)))
    return pool.map(load, range(9))
"""


def job(run: Path, program: str = PROGRAM, message: str = MISSING, at: int | None = None) -> Report:
    """A pool whose thread for results died below recv(); no worker had raised anything to the pool."""
    script = str(s.program_in(run, program))
    wait: list[Frame] = [
        ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
        ("ApplyResult.wait", f"{LIB}/pool.py", 765),
        ("main", script, at if at is not None else program.count("\n")),
    ]
    box = parent().at(500).thread_exception("TypeError", message, RECEIVER, thread="Thread-3 (_handle_results)")
    box.at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=wait, native=[(s.LIBC, 0x10)])
    worker = Box(pid=102, ppid=101).doing("name", "multiprocessing process ForkPoolWorker-1").at(400)
    idle: list[Frame] = [
        ("SemLock.__enter__", f"{LIB}/synchronize.py", 95),
        ("SimpleQueue.get", f"{LIB}/queues.py", 376),
        WORKER,
    ]
    return ended(run, box, stopped(worker, idle))


def test_exception_that_a_task_returned_is_told_with_its_constructor(run: Path) -> None:
    """And the task, and the line that returns it."""
    report = job(run)
    assert verdict(report) == ("hang", "likely")
    words = summary(report)
    assert (
        "its thread Thread-3 (_handle_results), which takes the results, had died of TypeError, as it could not load "
        "what the task `load` returned at line 9, a RowError: __init__() (line 2) takes `path`, `row` and `why`, and "
        "super().__init__() (line 3) gets " in words
    )
    assert "only, which is all that its pickle has" in words
    said = advice(report)
    assert said.startswith("At line 3, pass on all that __init__() takes: `super().__init__(path, row, why)`")
    assert "with the text in `__str__`; or define `__reduce__`" in said
    assert "Or let `load` return text at line 9 (`return (path, problem)`)." in said


@pytest.mark.parametrize(
    ("instead", "line"),
    [
        ("        return path, problem", 9),
        ('        result = {"path": path, "error": problem}\n        return result', 10),
        ("        errors = []\n        errors.append(problem)\n        return errors", 11),
        ('        return [RowError(path, 0, "twice")]', 9),
    ],
)
def test_task_is_known_by_what_it_returns(instead: str, line: int, run: Path) -> None:
    """Also in a dict or list, or made where it is returned."""
    report = job(run, PROGRAM.replace("        return path, problem", instead))
    assert f"what the task `load` returned at line {line}, a RowError: " in summary(report)


@pytest.mark.parametrize("handler", ["Exception", "(OSError, RowError)"])
def test_handler_of_any_exception_catches_it_too(handler: str, run: Path) -> None:
    """As most programs write it."""
    assert "returned at line 9, a RowError" in summary(
        job(run, PROGRAM.replace("except RowError", f"except {handler}"))
    )


@pytest.mark.parametrize("instead", ["        return path, str(problem)", "        return path, problem.row"])
def test_task_that_returns_what_it_made_of_the_error_is_not_named(instead: str, run: Path) -> None:
    """The class is known by the message all the same, and not who sent it."""
    words = summary(job(run, PROGRAM.replace("        return path, problem", instead)))
    assert "as it could not load what a worker had sent, a RowError: __init__() (line 2)" in words
    assert "the task" not in words


def test_object_of_a_derived_class_may_be_meant(run: Path) -> None:
    """CPython's message names the class that has the constructor."""
    program = PROGRAM.replace("def load", "class Empty(RowError):\n    pass\n\ndef load")
    assert "an object of RowError or of a class derived from it: __init__()" in summary(job(run, program))


OWN_WAY = (
    '        super().__init__(f"{path}:{row}: {why}")\n    def __reduce__(self):\n        return RowError, (self.path,)'
)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (PROGRAM.replace('        super().__init__(f"{path}:{row}: {why}")', OWN_WAY), MISSING),
        (f"if fast:\n    class RowError(ValueError):\n        pass\n{PROGRAM}", MISSING),
        (PROGRAM, MISSING.replace("RowError", "HTTPStatusError")),  # of a library
        (PROGRAM.replace("ValueError", "Record"), MISSING),  # no exception, as far as is known
        (
            PROGRAM,
            MISSING.replace("2 required", "1 required").replace("'row' and ", ""),
        ),  # its pickle has another number
        (PROGRAM.replace('f"{path}:{row}: {why}"', "path, row, why"), MISSING),  # it is made again well
    ],
    ids=["reduce", "two classes", "library", "no exception", "number", "all"],
)
def test_other_classes_are_not_explained_by_their_constructor(program: str, message: str, run: Path) -> None:
    """The look-alikes: the message stays as it is."""
    report = job(run, program, message)
    assert f"had died of TypeError: {message}" in summary(report)
    assert "pass on all that __init__() takes" not in advice(report)


def test_pool_that_is_broken_by_a_returned_exception(run: Path) -> None:
    """concurrent.futures ends its workers itself then."""
    script = str(s.program_in(run, PROGRAM))
    lines = ("Traceback (most recent call last):", f'  File "{LIB}/connection.py", line 251, in recv', "    x")
    text = "\n".join((*lines, f"TypeError: {MISSING}"))
    kind = "concurrent.futures.process.BrokenProcessPool"
    worker = Box(pid=102, ppid=101).at(500).signal_seen(15, 101, ["python", "train.py"])
    worker.crash(15, code=0, state=EXIT, python=[("_process_worker", CF, 261)], native=[(s.LIBC, 0x10)])
    box = Box(pid=101).versions(torch="2.13.0").at(510).wait(102, signal=15).at(520)
    said = "A process in the process pool was terminated abruptly"
    box.exception(kind, said, [("main", script, 13)], remote_traceback=f"'''\n{text}'''")
    report = build_report(s.load(run, box.exit(1), worker))
    assert "no worker had died before, and the pool ended them itself" in summary(report)
    assert "a RowError: __init__() (line 2) takes `path`, `row` and `why`" in summary(report)
    assert "`super().__init__(path, row, why)`" in advice(report)
