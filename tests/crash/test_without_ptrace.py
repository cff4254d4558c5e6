"""Containers whose seccomp filter refuses ptrace and process_vm_readv, where py-spy cannot attach: signals and the
recordings suffice.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytracer.decode.types.journal import UncaughtException
from pytracer.decode.types.snapshot import Crash
from tests.conditions import needs_compiler, needs_core, needs_native
from tests.harm.cells import program
from tests.support.cli import ROOT
from tests.support.crash import PROGRAMS, Ended, ended, environment, torchrun

pytestmark = [needs_core, needs_compiler]

THREADS = """
import ctypes, os, sys, threading, time
begun = threading.Event()
def load():
    begun.set()
    time.sleep(60)
threading.Thread(target=load, daemon=True).start()
begun.wait()
time.sleep(0.1)
def main():
    print("ready", flush=True)
    {event}
main()
"""


def under_filter(*command: object) -> list[str]:
    """The command under the filter, the launcher included."""
    made = program("without_ptrace")
    assert made is not None
    return [str(made), *map(str, command)]


def launched(run: Path, code: str) -> Ended:
    """`pytracer run` inside the container."""
    command = [sys.executable, "-m", "pytracer", "run", "-o", run, "--", sys.executable, "-c", code]
    return ended(under_filter(*command), environment(PYTHONPATH=str(ROOT)), run)


def assert_both_threads(crash: Crash | None, functions: set[str]) -> None:
    assert crash is not None
    assert functions <= {frame.function for _, frames in crash.python_threads for frame in frames}
    (other,) = crash.threads
    assert (other.state, other.complete) == ("done", True)
    assert crash.threads_how == "signal"


def test_filter_refuses(tmp_path: Path) -> None:
    """The test's own premise."""
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.ptrace(0, 0, 0, 0), ctypes.get_errno())"
    words = under_filter(sys.executable, "-c", code)
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "-1 1\n"


def test_crash_has_the_stacks_of_all_threads(tmp_path: Path) -> None:
    """Native and Python, by a real-time signal."""
    done = launched(tmp_path / "run", THREADS.format(event="ctypes.string_at(8)"))
    assert done.status == 139
    (box,) = [box for box in done.boxes if box.crash]
    assert_both_threads(box.crash, {"main", "load"})


def test_early_exception_and_killer_are_recorded(tmp_path: Path) -> None:
    """Neither needs the refused calls."""
    done = launched(tmp_path / "run", "def configure(): raise ValueError('no such key')\nconfigure()")
    (box,) = [box for box in done.boxes if box.recorded(UncaughtException)]
    assert box.recorded(UncaughtException)[0].data.message == "no such key"
    done = launched(tmp_path / "other", "import os\ndef finish(): os.kill(os.getpid(), 9)\nfinish()")
    ((send,),) = [box.sends for box in done.boxes if box.sends]
    assert [frame.function for frame in send.stack] == ["finish", "<module>"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A process below the launcher that does not end."""
    run = tmp_path / "run"
    code = THREADS.format(event="print(os.getpid(), flush=True); time.sleep(60)")
    command = [sys.executable, "-m", "pytracer", "run", "--no-report", "-o", run, "--", sys.executable, "-c", code]
    with subprocess.Popen(
        under_filter(*command), env=environment(PYTHONPATH=str(ROOT)), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        pid = int(process.stdout.readline())
        time.sleep(0.2)
        yield run, pid
        process.terminate()
        process.wait(timeout=60)


def test_attach_shows_the_stacks_of_all_threads(running: tuple[Path, int], tmp_path: Path) -> None:
    """`pytracer attach`, itself under the filter: every thread of a process that stands still."""
    run, pid = running
    command = under_filter(sys.executable, "-m", "pytracer", "attach", run, "--json")
    done = subprocess.run(
        command, env=environment(PYTHONPATH=str(ROOT)), cwd=tmp_path, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (process,) = [item for item in json.loads(done.stdout)["processes"] if item["pid"] == pid]
    stacks = [[frame["function"] for frame in thread.get("python_stack") or []] for thread in process["threads"]]
    assert any("main" in stack for stack in stacks) and any("load" in stack for stack in stacks)


def test_doctor_says_what_is_lost() -> None:
    """ptrace is refused, by its error, with what is done instead."""
    code = "from pytracer.cli.checks.threads import check_ptrace; c = check_ptrace(); print(c.result, c.detail)"
    words = under_filter(sys.executable, "-c", code)
    done = subprocess.run(
        words, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "forbidden (EPERM), as by a container's filter of system calls" in done.stdout, done.stderr
    assert "stacks of other threads are taken by a real-time signal" in done.stdout


@needs_native
@pytest.mark.slow
def test_hang_is_reported_with_stacks(tmp_path: Path) -> None:
    """The launcher's look at a job that hangs, under the filter: who waits for whom, and the line of the late rank."""
    run = tmp_path / "run"
    job = torchrun(PROGRAMS / "rank_that_is_late.py", "9")
    command = [sys.executable, "-m", "pytracer", "run", "-o", run, "--hang-timeout", "3", "--", *job]
    done = ended(under_filter(*command), environment(PYTHONPATH=str(ROOT)), run)
    assert done.status == 0, done.stderr
    assert "Rank 0 waits in all_reduce number 4" in done.stderr
    assert "rank 1 has not entered it" in done.stderr
    kept = json.loads((run / "hang.json").read_text(encoding="utf-8"))
    lines = {
        frame["function"]
        for process in kept["processes"]
        if process.get("rank") == 1
        for thread in process["threads"]
        for frame in thread.get("python_stack") or []
        if str(frame.get("file", "")).endswith("rank_that_is_late.py")
    }
    assert lines
