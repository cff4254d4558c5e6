"""Programs that confine themselves by seccomp end as untraced: the recorder makes no system call under the filter."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.launcher.run_directory import seccomp_filters
from tests.conditions import needs_compiler, needs_core
from tests.support.cli import ROOT
from tests.support.crash import PROGRAMS, Ended, ended, environment, preloaded, traced_run

pytestmark = [
    needs_core,
    needs_compiler,
    pytest.mark.skipif(seccomp_filters() is None, reason="the kernel does not tell the number of filters"),
]

ENDS = ["return", "_exit", "exit-thread", "crash", "handled", "abort", "raise"]
WHAT = [*ENDS, "fork", "thread", "threads-end", "actions"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sandboxed.c, built."""
    path = tmp_path_factory.mktemp("sandboxed") / "sandboxed"
    subprocess.run(["cc", "-O1", "-pthread", "-w", "-o", path, PROGRAMS / "sandboxed.c"], check=True)
    return path


def compare(run: Path, *command: str | Path, below: tuple[str | Path, ...] = ()) -> Ended:
    """Runs it untraced and by environment, optionally under another command; status and output are the same."""
    plain = ended([*below, *command], environment(), run)
    done = ended([*below, *command], preloaded(run, PYTRACER_SECCOMP_FILTERS=str(seccomp_filters())), run)
    assert plain.status != -signal.SIGSYS, "the filter ends it untraced, too"
    assert (done.status, done.stdout) == (plain.status, plain.stdout)
    return done


@pytest.mark.parametrize("what", WHAT)
def test_confined_program_ends_as_untraced(what: str, program: Path, run: Path) -> None:
    """Whatever it does afterwards: no additional system call is made, and buffered output is written."""
    done = compare(run, program, "prctl", what)
    assert [box.crash for box in done.boxes] == [None]


@pytest.mark.parametrize("how", ["syscall", "syscall-prctl", "all-threads"])
@pytest.mark.parametrize("what", ["return", "crash"])
def test_every_way_to_install_a_filter_is_seen(how: str, what: str, program: Path, run: Path) -> None:
    """libseccomp's is syscall(SYS_seccomp), since libc has no seccomp()."""
    compare(run, program, how, what)


def test_strict_mode_leaves_read_write_and_exit(program: Path, run: Path) -> None:
    """Not even exit_group is allowed there."""
    done = compare(run, program, "strict", "exit-thread")
    assert done.status == 6


@pytest.mark.parametrize("how", ["none", "question", "refused"])
def test_program_without_a_filter_is_recorded(how: str, program: Path, run: Path) -> None:
    """A null filter only queries support, an empty one is refused: the crash has a report."""
    done = compare(run, program, how, "crash")
    assert done.box.crash is not None
    assert done.box.crash.signal == signal.SIGSEGV
    assert "OTHER_THREADS" in done.box.crash.steps_done


@pytest.mark.parametrize("what", ["return", "crash", "exec"])
def test_launcher_does_not_matter(what: str, program: Path, run: Path) -> None:
    """Under `pytracer run` the same, as a shell sees it."""
    plain = ended([program, "prctl", what], environment(), run)
    done = traced_run(program, "prctl", what, run=run, options=("--quiet",))
    assert done.stdout == plain.stdout
    assert done.status == (plain.status if plain.status >= 0 else 128 - plain.status)


def test_program_executed_in_a_sandbox_is_left_alone(program: Path, run: Path) -> None:
    """It inherits a filter that its launcher does not have: the recorder does not start."""
    done = compare(run, program, "prctl", "exec")
    assert done.stdout.endswith("executed\n")
    assert [box.argv[1:] for box in done.boxes] == [("prctl", "exec")], "that of the program before"


def test_filter_of_the_surroundings_does_not_keep_from_recording(program: Path, run: Path) -> None:
    """A container's filter applies to the launcher, too: it permits what the recorder needs."""
    below = (sys.executable, PROGRAMS / "without_ptrace.py")
    script = ROOT / "scripts" / "pytracer-run"
    done = ended([*below, script, program, "none", "crash"], environment(PYTRACER_DIR=str(run)), run)
    assert done.status == -signal.SIGSEGV
    assert done.box.crash is not None
    traced = ended([*below, script, program, "prctl", "exec"], environment(PYTRACER_DIR=str(run)), run)
    assert (traced.status, traced.stdout[-9:]) == (7, "executed\n")
    assert not any("executed" in box.argv for box in traced.boxes)


@pytest.mark.parametrize("command", [("man", "-w", "ls"), ("file", "/bin/sh")], ids=["man", "file"])
def test_programs_that_use_libseccomp(command: tuple[str, ...], run: Path) -> None:
    """man-db and file confine themselves; their output is the same."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    compare(run, *command)
