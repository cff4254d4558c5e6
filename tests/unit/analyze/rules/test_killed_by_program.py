"""external-kill: a line of the program that sent SIGKILL, and the condition below which it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Process, SignalSend
from pytracer.decode.types.storages import PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import MS, Box

WATCH = """def murder_stale(self):
    if time.monotonic() - self.beat.value > self.timeout:
        os.kill(self.worker.pid, signal.SIGKILL)
"""


def killed(run: Path, source: str, line: int = 3, outer: int | None = None) -> Report:
    """By its parent, at a line of this program; `outer`: the line of its module that called the function."""
    script = str(s.program_in(run, source))
    parent, child = Box(pid=101, ppid=99).at(500), Box(pid=102, ppid=101).at(500).mark("begin")
    parent.at(900).wait(102, signal=9).exit(1)
    job = s.load(run, parent, child)

    def noting(process: Process) -> Process:
        if process.snapshot.pid != 101:
            return process
        frame = PythonFrame("murder_stale" if outer is None else "account", script, line)
        at = child.created_ns + 800 * MS
        frames = (frame,) if outer is None else (frame, PythonFrame("<module>", script, outer))
        send = SignalSend(9, 102, False, 0, child.start_ticks, "R", 101, at, frames)
        return replace(process, snapshot=replace(process.snapshot, sends=(send,)))

    return build_report(replace(job, processes=tuple(noting(item) for item in job.processes)))


def test_time_that_had_passed_is_told(run: Path) -> None:
    """The condition is the reason: the program's own time limit, not a lack of memory."""
    report = killed(run, WATCH)
    assert verdict(report)[0] == "external-kill"
    assert "in murder_stale, where `time.monotonic() - self.beat.value > self.timeout` holds (line 2)" in summary(
        report
    )
    assert "If that time is too short, raise it; else see what took so long." in advice(report)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            WATCH.replace("time.monotonic() - self.beat.value > self.timeout", "self.finished"),
            "where `self.finished` holds",
        ),
        ("def stop(self):\n    self.report()\n    os.kill(self.worker.pid, signal.SIGKILL)\n", "it sends the signal."),
    ],
    ids=["no time", "no condition"],
)
def test_other_conditions_are_no_limits_of_time(source: str, words: str, run: Path) -> None:
    report = killed(run, source)
    assert words in f"{summary(report)} {advice(report)}"
    assert "too short" not in advice(report)


ACCOUNT = """def sample(task):
    return {{"mem": task.memory_info().rss / 2**20, "age": time.time() - task.create_time()}}
class Job:
    def __init__(self, pid):
        self.pid = pid
    def resident(self):
        return int(open(f"/proc/{{self.pid}}/statm").read().split()[1])
def pages_of(pid):
    with open(f"/proc/{{pid}}/statm") as file, lock:
        return int(file.read().split()[1])
def account(pid, mem_mb):
    job = psutil.Process(pid)
    tasks, seen = {{}}, {{}}
    for task in [job, *job.children()]:
        tasks[task.pid] = task.memory_info().rss / 2**20
        seen[task.pid] = time.time() - task.create_time()
        stats = sample(task)
    used, oldest = sum(tasks.values()), max(seen.values())
    {decides}
account(101, 1300)
"""
KILLS = "os.kill(pid, 9)"


def accounted(run: Path, decides: str) -> Report:
    """By the program's line that has the signal in it."""
    source = ACCOUNT.format(decides=decides.replace("KILL", KILLS))
    lines = source.splitlines()
    line = next(number for number, text in enumerate(lines, 1) if KILLS in text)
    return killed(run, source, line, outer=len(lines))


@pytest.mark.parametrize(
    "decides",
    [
        "if used > mem_mb:\n        KILL",
        "if mem_mb < used:\n        KILL",
        "if max(tasks.values()) > mem_mb:\n        if children:\n            KILL",
        "if used <= mem_mb: return\n    KILL",
        'if stats["mem"] > mem_mb:\n        KILL',
        "if Job(pid).resident() * 4096 >= mem_mb:\n        KILL",
        "if pages_of(pid) * 4096 >= mem_mb:\n        KILL",
        "largest = max(tasks, key=tasks.get)\n    if tasks[largest] > mem_mb:\n        KILL",
    ],
)
def test_what_a_variable_has_of_memory_is_a_limit_of_memory(decides: str, run: Path) -> None:
    """With the limit's value, and what to do; the process is not called blameless."""
    report = accounted(run, decides)
    assert "`mem_mb` is 1300" in summary(report)
    assert "That is a limit of memory: find what the processes that it counts keep" in advice(report)
    assert advice(report).endswith("or raise the limit, `mem_mb` (1300), where there is memory for it.")
    assert "nothing wrong" not in advice(report)


@pytest.mark.parametrize(
    "decides",
    [
        "if oldest > mem_mb:\n        KILL",
        'if stats["age"] > mem_mb:\n        KILL',
        "if len(tasks) > mem_mb:\n        KILL",
        "if finished(pid):\n        KILL",
        "if used > mem_mb:\n        print(used)\n    KILL",
    ],
)
def test_condition_of_something_else_beside_memory_is_no_limit_of_it(decides: str, run: Path) -> None:
    """The age of the same tasks, their number, and a warning that does not decide."""
    report = accounted(run, decides)
    assert "of memory" not in f"{summary(report)} {advice(report)}"
    assert "The killed process itself did nothing wrong." in advice(report)
