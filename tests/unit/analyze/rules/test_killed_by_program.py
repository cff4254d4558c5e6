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


def killed(run: Path, source: str, line: int = 3, outer: int | None = None, method: str = "murder_stale") -> Report:
    """By its parent, at a line of this program; `outer`: the line of its module that called the function."""
    script = str(s.program_in(run, source))
    parent, child = Box(pid=101, ppid=99).at(500), Box(pid=102, ppid=101).at(500).mark("begin")
    parent.at(900).wait(102, signal=9).exit(1)
    job = s.load(run, parent, child)

    def noting(process: Process) -> Process:
        if process.snapshot.pid != 101:
            return process
        frame = PythonFrame(method if outer is None else "account", script, line)
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


def test_time_that_a_name_of_the_condition_is_bound_to_is_one(run: Path) -> None:
    """Found by a twin: `age` was no time, and the worker that had stood still was said to have done nothing wrong."""
    old = "    if time.monotonic() - self.beat.value > self.timeout:"
    new = "    age = time.monotonic() - self.beat.value\n    if age > self.patience:"
    report = killed(run, WATCH.replace(old, new), line=4)
    assert "where `age > self.patience` holds (line 3)" in summary(report)
    assert "If that time is too short, raise it; else see what took so long." in advice(report)
    assert "nothing wrong" not in advice(report)


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
        "if max(tasks.values()) > mem_mb and children:\n        KILL",
        (
            "if not (used <= mem_mb):\n        for one in children: print(one)\n        try:\n            KILL\n"
            "        except OSError: pass"
        ),
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
    # What held may be about that process: only where nothing decided is it said to be innocent.
    assert ("The killed process itself did nothing wrong." in advice(report)) == ("print(used)" in decides)


MEASURES = """def sample(task):
    return task.memory_info().rss, time.time() - task.create_time()
class Watch:
    def check(self, task, pid, limit, expected):
        rss = task.memory_info().rss
        free = psutil.virtual_memory().available
        usage = psutil.virtual_memory().total - psutil.virtual_memory().available
        size, age = sample(task)
        item = Sample(task.memory_info().rss, time.time() - self.beat)
        meminfo = pynvml.nvmlDeviceGetMemoryInfo(self.handle)
        self.history.append((time.time(), task.memory_info().rss))
        first, last = self.history[0], self.history[-1]
        parts = {{"gpu_mem": gpu_used(pid), "rss": rss}}
        {decides}
"""


def watched(run: Path, decides: str) -> Report:
    """By the line that has the signal in it."""
    source = MEASURES.format(decides=decides.replace("KILL", KILLS))
    line = next(number for number, text in enumerate(source.splitlines(), 1) if KILLS in text)
    return killed(run, source, line)


@pytest.mark.parametrize(
    "decides",
    [
        "if rss > limit:\n            print(rss)\n        elif age > limit:\n            KILL",
        "if rss > limit:\n            print(rss)\n        else:\n            KILL",
        "if rss < limit: return\n        if age > limit:\n            KILL",
        "if rss < limit: return\n        if not self.victim: return\n        KILL",
        "if rss < limit: return\n        while self.busy: pass\n        KILL",
        "try:\n            if rss > limit: raise Warning\n        except Warning:\n            KILL",
        "if rss > limit:\n            try: stop(pid)\n            except OSError:\n                KILL",
        "if rss > limit:\n            self.dead and KILL",
        "if psutil.virtual_memory().total < limit:\n            KILL",
        "if rss < expected:\n            KILL",
        "if rss > limit: return\n        KILL",
        "if usage > limit:\n            KILL",
        "if limit - rss > expected:\n            KILL",
        "if age > limit or rss > limit:\n            KILL",
        "if age > limit and rss > limit:\n            KILL",
        "if rss < limit and self.quiet: return\n        KILL",
        "if age > limit:\n            KILL",
        "if item.age > limit:\n            KILL",
        "if last[0] - first[0] > limit:\n            KILL",
        "if meminfo.used > limit:\n            KILL",
        "if torch.cuda.memory_stats(0).peak > limit:\n            KILL",
        "if gpu_memory_used(pid) > limit:\n            KILL",
        "if time.time() - self.shared_memory_beats[pid] > limit:\n            KILL",
        'if max(parts["gpu_mem"], 0) > limit:\n            KILL',
        "if memory > limit:\n            KILL",
    ],
)
def test_what_does_not_decide_by_more_memory_is_no_limit_of_it(decides: str, run: Path) -> None:
    """Another condition in between, an `else`, an `except`, less memory, another memory, what lies beside it."""
    report = watched(run, decides)
    assert "limit of memory" not in advice(report)
    assert "raise the limit" not in advice(report)
    assert "it had used" not in summary(report)


@pytest.mark.parametrize(
    "decides",
    [
        "if size > limit:\n            KILL",
        'if parts["rss"] > limit:\n            KILL',
        "if last[1] > limit:\n            KILL",
    ],
)
def test_item_that_has_memory_is_followed_by_its_place(decides: str, run: Path) -> None:
    """Of a tuple, and of a dict."""
    assert "That is a limit of memory" in advice(watched(run, decides))


@pytest.mark.parametrize("decides", ["if free < limit:\n            KILL", "if free >= limit: return\n        KILL"])
def test_least_of_free_memory_is_not_to_be_raised(decides: str, run: Path) -> None:
    """It is named, and what may be done."""
    report = watched(run, decides)
    assert ("where `free < limit` holds" if "<" in decides else "where `free >= limit` does not hold") in summary(
        report
    )
    assert "It watches free memory: find what the processes that it counts keep" in advice(report)
    assert "raise" not in advice(report)
    assert "nothing wrong" not in advice(report)


PARSED = """import argparse
def account(pid, args):
    if psutil.Process(pid).memory_info().rss >> 20 > args.mem:
        os.kill(pid, 9)
parser = argparse.ArgumentParser()
parser.add_argument('--mem', type=int, default=1300)
{sets}
args = parser.{parses}
account(101, args)
"""


@pytest.mark.parametrize(
    ("sets", "parses", "known"),
    [
        ("pass", "parse_args()", True),
        ("pass", "parse_args(sys.argv[1:])", True),
        ("pass", "parse_args(['--mem', '7'])", False),
        ("parser.set_defaults(**json.load(open('options.json')))", "parse_args()", False),
    ],
)
def test_value_of_option_is_told_where_the_program_sets_no_other(
    sets: str, parses: str, known: bool, run: Path
) -> None:
    source = PARSED.format(sets=sets, parses=parses)
    report = killed(run, source, 4, outer=9)
    assert ("1300" in f"{summary(report)} {advice(report)}") == known
    assert "raise the limit, `--mem`" in advice(report)


@pytest.mark.parametrize("forked", [True, False])
def test_peak_of_what_was_started_by_exec_is_its_parents(forked: bool, run: Path) -> None:
    """The kernel keeps it over exec, so that of a forked child alone is told."""
    script = str(s.program_in(run, WATCH.replace("time.monotonic() - self.beat.value", "rss_of(self.worker).rss")))
    parent = Box(pid=101, ppid=99).at(500).versions(python="3.12")
    child = parent.fork(102) if forked else Box(pid=102, ppid=101).at(500).versions(python="3.12")
    at = child.created_ns + 1 * MS
    job = s.load(run, parent.at(900).wait(102, signal=9).exit(1), child.mark("begin"))
    frames = (PythonFrame("murder_stale", script, 3),)
    send = SignalSend(9, 102, False, 0, child.start_ticks, "R", 101, at, frames)
    processes = [
        replace(item, snapshot=replace(item.snapshot, sends=(send,))) if item.snapshot.pid == 101 else item
        for item in job.processes
    ]
    report = build_report(replace(job, processes=tuple(processes)))
    assert "That is a limit of memory" in advice(report)
    assert ("it had used up to 80.0 MiB of memory, shared pages included" in summary(report)) == forked


@pytest.mark.parametrize(("first", "sibling", "known"), [(100, 60, True), (100, 120, False), (400, 60, False)])
def test_peak_over_that_of_a_sibling_of_the_same_time_is_its_own(
    first: int, sibling: int, known: bool, run: Path
) -> None:
    """What the parent had when it started them is in both; not where the sibling had more, or is older."""
    script = str(s.program_in(run, WATCH.replace("time.monotonic() - self.beat.value", "rss_of(self.worker).rss")))
    parent = Box(pid=101, ppid=99).at(500).versions(python="3.12")
    child = Box(pid=102, ppid=101).at(500).mark("begin")
    other = Box(pid=103, ppid=101).at(500).mark("begin")
    at = child.created_ns + 1 * MS
    job = s.load(run, parent.at(900).wait(102, signal=9).wait(103, exit_code=0).exit(1), child, other.exit(0))
    frames = (PythonFrame("murder_stale", script, 3),)
    send = SignalSend(9, 102, False, 0, first + 5, "R", 101, at, frames)
    ticks, peaks = {101: 1, 102: first + 5, 103: 106}, {102: 100 << 20, 103: sibling << 20}
    processes = []
    for item in job.processes:
        pid = item.snapshot.pid
        sends = (send,) if pid == 101 else ()
        usage = replace(item.usage, maxrss=peaks[pid]) if pid in peaks and item.usage is not None else item.usage
        processes.append(
            replace(item, usage=usage, snapshot=replace(item.snapshot, sends=sends, start_ticks=ticks[pid]))
        )
    report = build_report(replace(job, processes=tuple(processes)))
    assert ("it had used up to 100.0 MiB of memory" in summary(report)) == known


HELD = """import argparse
class JobLimit(threading.Thread):
    def __init__(self, limit_mb):
        super().__init__(daemon=True)
        self.limit = limit_mb * 2 ** 20
    def run(self):
        for child in mp.active_children():
            if psutil.Process(child.pid).memory_info().rss > self.limit:
                os.kill(child.pid, 9)
parser = argparse.ArgumentParser()
parser.add_argument('--mem', type=int, default=640)
args = parser.parse_args()
JobLimit(args.mem).start()
{more}
"""


@pytest.mark.parametrize(("more", "known"), [("pass", True), ("JobLimit(7).start()", False)])
def test_limit_that_an_object_keeps_is_followed_to_its_option(more: str, known: bool, run: Path) -> None:
    """Where one line alone makes such an object."""
    report = killed(run, HELD.format(more=more), 9, method="JobLimit.run")
    assert ("holds (line 8, `self.limit` is 640.0 MiB)" in summary(report)) == known
    assert ("raise the limit, `--mem` (640.0 MiB)" in advice(report)) == known


AGENT = """
import os, signal, sys, time
pid, quota = int(sys.argv[1]), int(sys.argv[2]) << 20
while os.getppid() == pid:
    with open(f"/proc/{pid}/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    if DECIDES:
        os.kill(pid, signal.SIGKILL)
        break
    time.sleep(0.02)
"""
TRAINS = """import argparse, os, subprocess, sys
import numpy as np
WATCH = {text!r}
def watch(limit):
    return subprocess.Popen([sys.executable, "-c", WATCH, str(os.getpid()), str(limit)])
class Buffer:
    def __init__(self, shape, rows):
        self.seen = np.{makes}((rows, *shape), dtype=np.uint8)
        self.next = np.{makes}((rows, *shape), dtype=np.uint8)
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default={rows})
    parser.add_argument("--most", type=int, default=520)
    args = parser.parse_args()
    watch(args.most)
    buffer = Buffer((9, 128, 128), args.rows)
    train(buffer)
main()
"""


def watched_by_child(
    run: Path, decides: str = "resident > quota", makes: str = "empty", rows: int = 20000, text: str | None = None
) -> Report:
    """By a child whose program is a text of this one; `text`: what is on its command line instead."""
    agent = AGENT.replace("DECIDES", decides)
    script = str(s.program_in(run, TRAINS.format(text=agent, makes=makes, rows=rows)))
    root = Box(pid=99, ppid=1).at(500)
    parent = Box(pid=101, ppid=99, argv=["python", script]).at(500).versions(torch="2.13.0").step(1)
    parent.alloc(0x1000, 64, parent.site(("main", script, 17)))
    child = Box(pid=102, ppid=101, argv=["python", "-S", "-c", text or agent, "101", "520"]).at(600).mark("begin")
    root.at(900).wait(101, signal=9).exit(1)
    job = s.load(run, root, parent, child)
    frames = (PythonFrame("<module>", "<string>", 8),)
    send = SignalSend(9, 101, False, 0, parent.start_ticks, "R", 102, parent.created_ns + 800 * MS, frames)
    processes = [
        replace(item, snapshot=replace(item.snapshot, sends=(send,))) if item.snapshot.pid == 102 else item
        for item in job.processes
    ]
    return build_report(replace(job, processes=tuple(processes)))


def test_watch_of_memory_that_is_a_text_of_the_program_is_read(run: Path) -> None:
    """Its condition, its limit, the line that starts it, and the option by which the limit is passed."""
    report = watched_by_child(run)
    assert verdict(report)[0] == "external-kill"
    assert "where `resident > quota` holds (line 7, `quota` is 520.0 MiB)" in summary(report)
    assert ": a watch of memory, which program.py:5 in watch starts" in summary(report)
    assert "nothing wrong" not in advice(report)
    assert "raise the limit, `--most` (520), where there is memory for it." in advice(report)


def test_arrays_that_take_memory_as_they_are_filled_are_named(run: Path) -> None:
    report = watched_by_child(run)
    assert "program.py:8 reserves 5.5 GiB for `self.seen` and `self.next`, which take memory as they are" in summary(
        report
    )
    assert advice(report).startswith(
        "Make `--rows` (20000) small enough for the limit: each entry that is filled takes 288.0 KiB."
    )


@pytest.mark.parametrize(("makes", "rows"), [("empty", 300), ("ones", 20000)])
def test_arrays_that_fit_or_are_filled_at_once_are_not_named(makes: str, rows: int, run: Path) -> None:
    """The look-alikes: they are less than the limit, or all their memory was there from the beginning."""
    assert "reserves" not in summary(watched_by_child(run, makes=makes, rows=rows))


def test_child_that_watches_something_else_is_no_watch_of_memory(run: Path) -> None:
    """The look-alike: a limit of time."""
    report = watched_by_child(run, decides="time.monotonic() > quota")
    assert "memory" not in summary(report) and "raise the limit" not in advice(report)
    assert ": a program that program.py:5 in watch starts" in summary(report)
    assert advice(report).startswith("Look at program.py:5 in watch, and at the program that it starts")
    assert "nothing wrong" not in advice(report)  # what held is about that process, as far as anybody knows


def test_text_of_another_program_is_not_found_in_this_one(run: Path) -> None:
    """The look-alike: started by somebody else's line."""
    report = watched_by_child(run, text=AGENT.replace("DECIDES", "resident > quota - 1"))
    assert "starts" not in summary(report)


def test_text_that_makes_code_of_its_own_is_not_read(run: Path) -> None:
    """The look-alike: `<string>` is then what it runs."""
    report = watched_by_child(run, text="exec(open('watch.py').read())" + 12 * "\n")
    assert "where" not in summary(report)
