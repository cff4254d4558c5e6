"""A worker of a pool that cannot read its task ends, and the pool waits for the result for ever; and look-alikes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame
from tests.unit.analyze.evidence.waits.test_lost_tasks import IDLE, MAP, POOL, QUEUES, worker

SCRIPT = """import multiprocessing as mp
{early}
def band_features(records):
    return records.mean()
{late}
def main():
    WORKERS.map(band_features, days)
main()
"""
MADE = "WORKERS = mp.Pool(2)"
MISSING = "Can't get attribute 'band_features' on <module '__main__' from '/home/user/seismic.py'>"
READS: list[Frame] = [("SimpleQueue.get", QUEUES, 367), ("worker", POOL, 114)]


def waiting(run: Path, early: str = "", late: str = "") -> Box:
    """The parent, in map()."""
    script = run / "seismic.py"
    script.write_text(SCRIPT.format(early=early, late=late), encoding="utf-8")
    os.utime(script, (0, 0))
    return stopped(parent(), [*MAP, ("main", str(script), 7), ("<module>", str(script), 8)])


def failed(message: str = MISSING, stack: list[Frame] = READS, name: str = "ForkPoolWorker") -> Box:
    return worker(102, 1, name=name).at(5_000).exception("AttributeError", message, stack).exit(1)


def test_pool_that_was_made_above_its_function_is_named(run: Path) -> None:
    """The wait is the verdict, not the error of a worker that the pool replaced."""
    report = ended(run, waiting(run, early=MADE), failed(), stopped(worker(103, 2), IDLE))
    assert verdict(report) == ("hang", "likely")
    assert "its worker ForkPoolWorker-1 (pid 102) could not read its task (AttributeError: Can't get" in summary(report)
    assert "the pool was made at line 2, before line 3 defined `band_features`" in summary(report)
    assert "Make the pool behind line 3, such as in main(): at line 2 (`mp.Pool(2)`) its workers" in advice(report)


@pytest.mark.parametrize(
    ("early", "late", "name"),
    [("", MADE, "ForkPoolWorker"), (MADE, "", "SpawnPoolWorker"), (MADE, MADE, "ForkPoolWorker")],
)
def test_order_of_lines_is_no_reason_where_the_worker_has_them_all(early: str, late: str, name: str, run: Path) -> None:
    """A pool below the function, a worker that imported the script itself, two pools."""
    report = ended(run, waiting(run, early, late), failed(name=name), stopped(worker(103, 2, name=name), IDLE))
    assert verdict(report)[0] == "hang"
    assert "could not read its task" in summary(report) and "the pool was made" not in summary(report)
    assert "Define `band_features` at the top level of a module that the workers import" in advice(report)


def test_other_errors_of_reading_leave_the_pool_waiting_too(run: Path) -> None:
    """Whatever an argument's class raises when it is made again."""
    report = ended(run, waiting(run), failed("'Record' object has no attribute 'rate'"), stopped(worker(103, 2), IDLE))
    assert verdict(report)[0] == "hang" and "'Record' object has no attribute 'rate'" in summary(report)


def test_error_in_code_of_the_program_is_the_verdict_itself(run: Path) -> None:
    """The look-alike: an argument's own __setstate__ failed, or the function that the pool ran."""
    stack: list[Frame] = [("Record.__setstate__", str(run / "seismic.py"), 4), *READS]
    report = ended(run, waiting(run), failed(stack=stack), stopped(worker(103, 2), IDLE))
    assert verdict(report)[0] == "python-exception"


@pytest.mark.parametrize(
    ("kind", "stack"),
    [
        ("RuntimeError", [("set_num_threads", "/usr/lib/python3.11/site-packages/torch/__init__.py", 9), READS[1]]),
        ("KeyboardInterrupt", READS),
    ],
    ids=["an initializer of a library", "interrupted"],
)
def test_other_ends_of_a_worker_are_not_about_its_task(kind: str, stack: list[Frame], run: Path) -> None:
    """Whatever a library raises before the first task, and Ctrl-C."""
    box = worker(102, 1).at(5_000).exception(kind, "expects a positive integer", stack).exit(1)
    report = ended(run, waiting(run), box, stopped(worker(103, 2), IDLE))
    assert "could not read its task" not in summary(report)


def test_argument_that_cannot_be_made_again_is_no_matter_of_where_it_is_defined(run: Path) -> None:
    """Its constructor wants more than pickle gives."""
    box = worker(102, 1).at(5_000).exception("TypeError", "__init__() missing 1 required argument", READS).exit(1)
    report = ended(run, waiting(run), box, stopped(worker(103, 2), IDLE))
    assert "could not read its task (TypeError" in summary(report)
    assert "See what the arguments of that task need" in advice(report)
