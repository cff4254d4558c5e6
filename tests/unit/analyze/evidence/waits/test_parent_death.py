"""standstill: workers of torch.multiprocessing.spawn that were interrupted when the thread that spawned them ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import SignalSend
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
GET: list[Frame] = [("Connection._recv", f"{LIB}/connection.py", 395), ("Queue.get", f"{LIB}/queues.py", 103)]
WRAP: list[Frame] = [("_wrap", f"{s.TORCH}/multiprocessing/spawn.py", 87)]
PROGRAM = """import threading
import torch.multiprocessing as mp
class Farm:
    def launch(self):
        self.group = mp.spawn(work, args=(self.out,), nprocs=1, join=False)
class Starter(threading.Thread):
    def run(self):
        self.farm.launch()
def main():
    farm = Farm()
    {start}
    farm.out.get()
"""
STARTS = ["threading.Thread(target=farm.launch).start()", "Starter(farm).start()", "pool.submit(farm.launch)"]


def left(run: Path, start: str = STARTS[0], frames: list[Frame] = WRAP, sender: int = 101, own: bool = False) -> Report:
    """The worker got SIGINT and ended with status 0; its parent waits for the queue that it should have filled."""
    script = str(s.program_in(run, PROGRAM.format(start=start)))
    worker = Box(pid=102, ppid=101).versions(torch="2.13.0").at(5_000).signal_seen(2, sender, handled=True)
    worker.crash(0, code=0, state=EXIT, python=[*GET, ("work", script, 3), *frames], native=[(s.LIBC, 0x10)])
    first = parent().at(5_100).wait(102, exit_code=0)
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, stopped(first, [*GET, ("main", script, 12)]), worker)
    if not own:
        return build_report(job)
    sent = SignalSend(2, 102, False, 0, None, None, 101, 4_999_000_000)
    processes = [
        replace(item, snapshot=replace(item.snapshot, sends=(sent,))) if item.snapshot.pid == 101 else item
        for item in job.processes
    ]
    return build_report(replace(job, processes=tuple(processes)))


@pytest.mark.parametrize("start", STARTS)
def test_thread_that_spawned_the_workers_and_ended_is_named(start: str, run: Path) -> None:
    """A target, run() of a class, and a task of an executor."""
    report = left(run, start)
    assert verdict(report) == ("hang", "likely")
    made = start.removesuffix(".start()")
    assert "by the SIGINT that the kernel sends to a worker of torch.multiprocessing.spawn when" in summary(report)
    assert f"the thread that spawned it (line 11: `{made}`) ends" in summary(report)
    assert "Call spawn() (line 5 in Farm.launch) in the main thread" in advice(report)
    assert "join the context (`self.group`) in it" in advice(report)
    assert "got SIGINT from its parent, process 101, which sent none and went on" in evidence(report)


def test_thread_that_the_source_does_not_show_is_not_made_up(run: Path) -> None:
    report = left(run, "farm.launch()")
    assert "when the thread that spawned it ends" in summary(report)
    assert "Call spawn() in the main thread" in advice(report)


@pytest.mark.parametrize("more", [{"frames": []}, {"sender": 0}, {"own": True}])
def test_other_interrupts_are_no_end_of_a_thread(more: dict[str, object], run: Path) -> None:
    """The look-alikes: another worker, Ctrl-C at a terminal, and a signal that the parent itself had sent."""
    report = left(run, **more)  # type: ignore[arg-type]
    assert "torch.multiprocessing.spawn" not in summary(report)
    assert "had ended with status 0" in summary(report)
