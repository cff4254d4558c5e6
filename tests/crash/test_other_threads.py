"""Every thread of a dying process is in the report: by ptrace under the launcher, else by a signal to each."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Crash, ThreadStack
from pytracer.report.job import ThreadReport
from tests.conditions import needs_compiler, needs_core, needs_torch
from tests.support.crash import PROGRAMS, Ended, ended, environment, line_of, traced_run, victim

pytestmark = [needs_core, needs_compiler]
PROGRAM = "other_threads.py"


def launched(*arguments: str, run: Path, before: tuple[str | Path, ...] = ()) -> Ended:
    """The victim under `pytracer run`, itself started by the command `before`."""
    python: list[str | Path] = [sys.executable, PROGRAMS / PROGRAM, *arguments]
    return ended(
        [*before, sys.executable, "-m", "pytracer", "run", "-o", run, "--no-report", "--", *python], environment(), run
    )


def crash_of(done: Ended) -> Crash:
    """The only crash of a run."""
    (crash,) = [box.crash for box in done.boxes if box.crash is not None]
    assert "OTHER_THREADS" in crash.steps_done
    return crash


def named(crash: Crash, name: str) -> list[ThreadStack]:
    """The threads of that kernel name."""
    return [thread for thread in crash.threads if thread.name == name]


def functions(done: Ended, tid: int) -> list[str]:
    """Names of a thread's native frames, innermost first."""
    (thread,) = [item for process in done.report.processes or () for item in process.threads or () if item.tid == tid]
    return [frame.function or "?" for frame in thread.native_stack or ()]


def in_report(done: Ended) -> list[ThreadReport]:
    """The threads of the process that died."""
    (process,) = [process for process in done.report.processes or () if process.signal is not None]
    return process.threads or []


@pytest.mark.parametrize(("way", "how"), [("launcher", "helper"), ("preload", "signal"), ("enable", "signal")])
def test_every_thread_has_its_stacks(way: str, how: str, run: Path) -> None:
    """Threads of Python and of others are listed once, with Python and native stacks; the crashed one comes first."""
    done = launched(run=run) if way == "launcher" else victim(PROGRAM, run=run, way=way)
    assert done.status in (-signal.SIGSEGV, 128 + signal.SIGSEGV)
    crash = crash_of(done)
    assert crash.threads_how == how
    assert crash.threads_total == len(crash.threads) == 3
    assert crash.steps_faulted == ()
    assert all(thread.state == "done" and thread.complete for thread in crash.threads)
    for parked in named(crash, "prefetch"):
        assert "wait_for_ever" in functions(done, parked.tid)

    threads = in_report(done)
    assert [thread.crashed for thread in threads] == [True, False, False, False]
    assert len({thread.tid for thread in threads}) == 4
    (reader,) = [thread for thread in threads if thread.kind == "python"]
    innermost = (reader.python_stack or [])[0]
    assert (innermost.function, innermost.line) == ("read_shards", line_of(PROGRAM, "os.read"))
    assert sorted(str(thread.kind) for thread in threads) == ["main", "native", "native", "python"]


def test_job_does_not_see_the_helper(run: Path) -> None:
    """The helper is not a child of the job, whose waits never return it."""
    done = launched("children", run=run)
    assert done.stdout == "no child\n"
    assert not (run / "helper.sock").exists()


def test_thread_that_blocks_all_signals_is_stopped_by_ptrace(run: Path) -> None:
    """No signal reaches it; the helper does."""
    crash = crash_of(launched("blocked", run=run))
    assert crash.threads_how == "helper"
    assert {thread.state for thread in crash.threads} == {"done"}


def test_thread_that_blocks_all_signals_is_named_without_ptrace(run: Path) -> None:
    """It cannot answer: its entry states this, the others have their stacks, and the death is not delayed for long."""
    done = victim(PROGRAM, "blocked", run=run)
    crash = crash_of(done)
    assert sorted(thread.state for thread in crash.threads) == ["asked", "done", "done"]
    (silent,) = [thread for thread in crash.threads if thread.state == "asked"]
    assert (silent.name, silent.native_stack) == ("prefetch", ())
    assert crash.step_ns["OTHER_THREADS"] - crash.mono_ns < 2_000_000_000


@pytest.mark.parametrize("way", ["launcher", "preload"])
def test_damaged_stack_costs_that_thread_alone(way: str, run: Path) -> None:
    """libgcc may fault on garbage: that walk ends, the others are complete."""
    done = launched("damaged", run=run) if way == "launcher" else victim(PROGRAM, "damaged", run=run)
    crash = crash_of(done)
    assert crash.steps_faulted == ()
    (damaged,) = named(crash, "damaged")
    assert damaged.state in ("faulted", "done")
    assert not damaged.complete
    assert damaged.native_stack
    assert all(thread.complete for thread in crash.threads if thread is not damaged)


def test_forbidden_ptrace_falls_back_to_the_signal(run: Path) -> None:
    """Under a filter that refuses ptrace the helper returns the error, and every thread gets the signal instead."""
    done = launched(run=run, before=(sys.executable, PROGRAMS / "without_ptrace.py"))
    assert done.status == 128 + signal.SIGSEGV
    crash = crash_of(done)
    assert (crash.threads_how, crash.helper_error) == ("signal", errno.EPERM)
    assert [thread.state for thread in crash.threads] == ["done"] * 3


@pytest.mark.parametrize("damage", ["nobody", "file", "directory"])
def test_socket_without_a_helper_changes_nothing(damage: str, run: Path) -> None:
    """A killed launcher's socket, or another file of that name: the signal is used without delay."""
    run.mkdir()
    place = run / "helper.sock"
    if damage == "nobody":
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
            left.bind(str(place))
    elif damage == "file":
        place.write_bytes(os.urandom(100))
    else:
        place.mkdir()
    crash = crash_of(victim(PROGRAM, run=run))
    assert (crash.threads_how, crash.helper_error) == ("signal", errno.ECONNREFUSED)
    assert len(crash.threads) == 3


def test_processes_that_die_together_are_all_served(run: Path) -> None:
    """One helper, eight deaths at once: every recording has the stacks of its other thread."""
    done = traced_run(sys.executable, PROGRAMS / "deaths_together.py", "8", run=run, options=("--no-report",))
    assert done.stdout == f"{[-signal.SIGSEGV] * 8}\n"
    crashes = [box.crash for box in done.boxes if box.crash is not None]
    assert len(crashes) == 8
    assert [len(crash.threads) for crash in crashes] == [1] * 8
    assert {thread.state for crash in crashes for thread in crash.threads} == {"done"}
    assert {crash.threads_how for crash in crashes} == {"helper"}


@pytest.mark.slow
def test_hundred_processes_that_die_together_are_all_reported(run: Path) -> None:
    """More than the helper serves at a time: processes that are not served in time use the signal."""
    done = traced_run(sys.executable, PROGRAMS / "deaths_together.py", "100", run=run, options=("--no-report",))
    assert done.stdout == f"{[-signal.SIGSEGV] * 100}\n"
    crashes = [box.crash for box in done.boxes if box.crash is not None]
    assert [len(crash.threads) for crash in crashes] == [1] * 100
    assert {thread.state for crash in crashes for thread in crash.threads} == {"done"}


@pytest.mark.skipif(os.geteuid() != 0, reason="making a pid namespace needs root")
def test_process_of_another_pid_namespace_is_served(run: Path) -> None:
    """The kernel translates the caller's pid; tids are those of the process's own namespace, as in its records."""
    shell = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh")
    done = traced_run(*shell, sys.executable, PROGRAMS / PROGRAM, run=run, options=("--no-report",))
    assert done.status == 128 + signal.SIGSEGV
    crash = crash_of(done)
    assert (crash.threads_how, crash.helper_error) == ("helper", None)
    assert all(thread.state == "done" and thread.complete for thread in crash.threads)
    assert {thread.tid for thread in crash.threads} == {crash.tid + i for i in (1, 2, 3)}


def test_path_may_be_longer_than_a_sockets_address(tmp_path: Path) -> None:
    """107 bytes fit into one: a longer run directory is accessed through a descriptor."""
    long = tmp_path / ("d" * 100) / ("e" * 100) / "run"
    long.parent.mkdir(parents=True)
    assert crash_of(launched(run=long)).threads_how == "helper"


@pytest.mark.slow
def test_helper_that_is_stopped_costs_little(run: Path) -> None:
    """It accepts no connection: after 0.6 s every thread gets the signal."""
    command = ["sh", "-c", f'{sys.executable} -c "$STOP" && "$@"', "sh", sys.executable, str(PROGRAMS / PROGRAM)]
    stop = (
        "import os, signal\n"
        "parent = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
        "for pid in open(f'/proc/{parent}/task/{parent}/children').read().split():\n"
        "    if open(f'/proc/{pid}/comm').read() == 'pytracer-helper\\n': os.kill(int(pid), signal.SIGSTOP)"
    )
    done = traced_run(*command, run=run, options=("--no-report",), STOP=stop)
    crash = crash_of(done)
    assert (crash.threads_how, crash.helper_error) == ("signal", errno.ETIMEDOUT)
    assert [thread.state for thread in crash.threads] == ["done"] * 3
    assert crash.step_ns["OTHER_THREADS"] - crash.mono_ns < 3_000_000_000


@pytest.mark.parametrize("way", ["launcher", "preload", "enable"])
def test_threads_are_left_alone_while_faults_are_repaired(way: str, run: Path) -> None:
    """No thread is interrupted for a fault that the program's own handler repairs."""
    program = "interrupted_reader.py"
    if way == "launcher":
        done = traced_run(sys.executable, PROGRAMS / program, run=run, options=("--quiet",))
    else:
        done = victim(program, run=run, way=way)
    assert (done.status, done.stdout) == (0, "3\n[(0, 0)]\n"), done.stderr


def test_helper_ends_with_its_launcher(run: Path) -> None:
    """A killed launcher leaves no helper behind, and the job continues."""
    code = "import os, time; print(os.getppid(), flush=True); time.sleep(2); print('trained', flush=True)"
    child = os.fork()
    if child == 0:
        os.chdir(run.parent)
        os.dup2(os.open(run.parent / "output", os.O_WRONLY | os.O_CREAT), 1)
        command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", sys.executable, "-c", code]
        os.execve(command[0], command, environment())
    output = run.parent / "output"
    _until(lambda: output.exists() and output.read_text().endswith("\n"))
    assert int(output.read_text()) == child
    helpers = _helpers(run)
    assert len(helpers) == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _until(lambda: not _helpers(run))
    _until(lambda: output.read_text().endswith("trained\n"))


def _helpers(run: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"_helper", os.fsencode(run)]:
                found.append(int(entry.name))
    return found


def _until(condition: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@needs_torch
def test_openmp_and_autograd_threads_are_told_apart(run: Path) -> None:
    """torch's own threads are named for what they are, although the kernel calls them all `python`."""
    done = traced_run(sys.executable, PROGRAMS / "fault_beside_openmp.py", run=run, options=("--no-report",))
    assert done.status == 128 + signal.SIGSEGV
    kinds = [thread.kind for thread in in_report(done)]
    assert kinds[0] == "main"
    assert "openmp" in kinds
