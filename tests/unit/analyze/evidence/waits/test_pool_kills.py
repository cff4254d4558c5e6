"""A pool's worker that a line of the program killed: the pool waits for its task, and what is no such end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Process, SignalSend
from pytracer.decode.types.storages import PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, parent, stopped
from tests.support.synth import MS, Box, Frame
from tests.unit.analyze.evidence.waits.test_lost_tasks import BUSY, IDLE, POOL, WAITS, worker

LOST = "its task is lost, and the pool waits for that result for ever"
WATCH = """class Share(threading.Thread):
    def run(self):
        for child in self.me.children():
            if {test}:
                os.kill(child.pid, signal.SIGKILL)
"""
MEMORY, TIME = "child.memory_info().rss > self.share", "time.time() - child.create_time() > self.patience"
ANEW: list[Frame] = [*IDLE, ("Pool._maintain_pool", POOL, 340), ("Pool._handle_workers", POOL, 516)]
OF_POOL = [
    PythonFrame("BaseProcess.terminate", "/usr/lib/python3.11/multiprocessing/process.py", 133),
    PythonFrame("Pool._terminate_pool", POOL, 694),
]


def killed(
    run: Path,
    *others: Box,
    test: str = MEMORY,
    signal: int = 9,
    sender: int = 101,
    through: Sequence[PythonFrame] = (),
    target: bool = True,
) -> Report:
    """Worker 102, 55 s before the end; `through`: library frames of the sender; `target`: by its start time, too."""
    script = run / "train.py"
    script.write_text(WATCH.format(test=test))
    os.utime(script, (0, 0))
    main, gone = parent(), worker(102, 1)
    main.at(5_000).wait(102, signal=signal)
    boxes = [stopped(main, WAITS), gone, *others]
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, *boxes)

    def noting(process: Process) -> Process:
        if process.snapshot.pid != sender:
            return process
        frames = (*through, PythonFrame("Share.run", str(script), 5))
        ticks = gone.start_ticks if target else None
        send = SignalSend(signal, 102, False, 0, ticks, "R", sender, main.created_ns + 4_999 * MS, frames)
        return replace(process, snapshot=replace(process.snapshot, sends=(send,)))

    return build_report(replace(job, processes=tuple(noting(item) for item in job.processes)))


def idle(pid: int = 103, number: int = 2, later: int = 0, stack: list[Frame] = IDLE) -> Box:
    return stopped(worker(pid, number, later=later), stack)


def test_worker_that_a_thread_of_the_program_killed_leaves_its_pool_waiting(run: Path) -> None:
    """Who sent it, where, on which condition; what a limit of memory asks for."""
    report = killed(run, idle())
    assert verdict(report) == ("hang", "likely")
    assert "its worker ForkPoolWorker-1 (pid 102) was killed" in summary(report)
    assert "by SIGKILL, sent by this process itself, at train.py:5 in Share.run" in summary(report)
    assert f"where `{MEMORY}` holds (line 4)" in summary(report) and LOST in summary(report)
    assert advice(report).startswith("Let a task need less memory")
    assert "raise the limit, `self.share`" in advice(report) and "ProcessPoolExecutor" in advice(report)
    assert "numpy" not in advice(report)


def test_another_condition_is_named_without_memory(run: Path) -> None:
    """What the line asks for is what the reader looks at."""
    report = killed(run, idle(), test=TIME)
    assert f"where `{TIME}` holds" in summary(report) and LOST in summary(report)
    assert "memory" not in advice(report) and "it sends SIGKILL" in advice(report)


def test_sigterm_of_a_line_of_the_program_loses_the_task_too(run: Path) -> None:
    """Process.terminate() outside of the pool's own end."""
    through = OF_POOL[:1]
    assert LOST in summary(killed(run, idle(), signal=15, through=through))


def test_only_worker_of_a_pool_is_known_by_the_one_in_its_place(run: Path) -> None:
    """The thread of the pool that watches its workers has started that."""
    assert LOST in summary(killed(run, idle(later=6, stack=ANEW)))


def test_worker_at_work_leaves_it_open_whether_its_task_is_the_lost_one(run: Path) -> None:
    """An idle worker may have been killed, and the other's task be slow."""
    report = killed(run, idle(stack=BUSY))
    assert verdict(report) == ("hang", "possible")
    assert LOST not in summary(report)
    assert "a pool never gets the result of a task whose worker was killed" in summary(report)


def test_lock_of_the_tasks_is_what_a_killed_idle_worker_leaves_taken(run: Path) -> None:
    """One idle worker waits for a task with the lock held, the others for the lock: here nobody has it."""
    locked: list[Frame] = [("SemLock.__enter__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 95), *IDLE]
    report = killed(run, idle(stack=locked), idle(104, 3, 6, [*locked, *ANEW[1:]]))
    assert LOST not in summary(report)
    assert "held it, had been ended by SIGKILL before" in summary(report)
    report = killed(run, idle(stack=locked), idle(104, 3, 6, ANEW))
    assert LOST in summary(report)


@pytest.mark.parametrize("signal", [9, 15])
def test_pool_that_ends_its_workers_has_lost_nothing(signal: int, run: Path) -> None:
    """terminate(), and what leaves `with Pool()`."""
    report = killed(run, idle(later=6), signal=signal, through=OF_POOL)
    assert "was killed" not in summary(report) and "is lost" not in summary(report)


def test_killed_workers_of_an_earlier_pool_are_not_of_this_one(run: Path) -> None:
    """None went on, and what began later was started by the program's line for another pool."""
    report = killed(run, idle(later=6))
    assert "was killed" not in summary(report) and "is lost" not in summary(report)


def test_unknown_sender_is_not_said_to_be_a_line(run: Path) -> None:
    """Another process of that number may have been meant."""
    assert "sent by this process itself" not in summary(killed(run, idle(), sender=90, target=False))
