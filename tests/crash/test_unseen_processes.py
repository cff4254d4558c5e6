"""Process trees of which a part runs without the recorder: told with the reason. A whole one is not."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytracer.launcher.unseen import Unseen
from tests.conditions import needs_native
from tests.support.crash import CORE, Ended, traced_run

pytestmark = [needs_native]

WORKER = "import torch, time; torch.ones(3); time.sleep(8)"
LATER = (sys.executable, "-c", "print('now', flush=True); input()")


def tree(tmp_path: Path, start: str) -> Ended:
    """A rank that starts a shell that starts a Python program with torch."""
    code = f"import subprocess, sys; subprocess.run([{start!r}], shell=True, check=True); sys.exit(3)"
    return traced_run(sys.executable, "-c", code, run=tmp_path / "run")


def told(done: Ended) -> list[str]:
    return [item.what or "" for item in done.report.damage or [] if "without the recorder" in (item.what or "")]


def test_program_that_lost_the_environment_is_told(tmp_path: Path) -> None:
    """`env -i`: which process, what it lacked, and the next step; the line is printed as it had loaded torch."""
    done = tree(tmp_path, f"env -i PATH=/usr/bin {shlex.quote(sys.executable)} -c {shlex.quote(WORKER)}")
    (what,) = told(done)
    name = Path(sys.executable).name
    assert f"({name} -c), which loaded torch, was started without the recorder" in what
    assert "its environment lacked LD_PRELOAD and PYTRACER_DIR" in what
    assert "start it by a `pytracer run` of its own" in what
    assert what in done.stderr


@pytest.mark.slow
def test_preload_that_was_dropped_is_told(tmp_path: Path) -> None:
    """As sudo does: the rest of the environment is there."""
    done = tree(tmp_path, f"env -u LD_PRELOAD {shlex.quote(sys.executable)} -c {shlex.quote(WORKER)}")
    (what,) = told(done)
    assert "its environment lacked LD_PRELOAD; pass it on" in what


@pytest.mark.slow
def test_tree_that_is_recorded_whole_is_not_told(tmp_path: Path) -> None:
    """Python below a shell below Python; and a program that is neither Python nor torch."""
    worker = f"{shlex.quote(sys.executable)} -c {shlex.quote(WORKER)}"
    done = tree(tmp_path, f"env -i PATH=/bin:/usr/bin sleep 4 & sh -c {shlex.quote(worker)}; wait")
    assert told(done) == []
    assert "without the recorder" not in done.stderr


@pytest.mark.parametrize("recorded", [True, False])
def test_only_what_looks_unseen_twice_is_told(tmp_path: Path, recorded: bool) -> None:
    """A process that ends or calls exec() has neither libraries nor environment for a moment: once is not enough."""
    environment = {"LD_PRELOAD": str(CORE), "PYTRACER_DIR": str(tmp_path)}
    becomes = f"import os; os.execve(sys.executable, {LATER!r}, {environment!r})"
    code = f"import sys; sys.stdin.readline(); {becomes if recorded else LATER[-1]}"
    with subprocess.Popen(
        [sys.executable, "-c", code], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        unseen = Unseen()
        unseen.child = process.pid
        time.sleep(1.2)  # younger ones are not looked at
        unseen.look()
        assert unseen.as_list() == []
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "now\n"
        time.sleep(0.6)
        unseen.look()
        told = [(item["pid"], item["lacks"]) for item in unseen.as_list()]
        process.stdin.close()
    assert told == ([] if recorded else [(process.pid, ["LD_PRELOAD", "PYTRACER_DIR"])])


def test_report_that_a_process_of_the_job_asks_for_is_not_told() -> None:
    """torchrun's agent does, without the recorder; and it may take a while."""
    with subprocess.Popen([sys.executable, "-m", "pytracer", "inspect", "none"], env={}) as process:
        process.send_signal(signal.SIGSTOP)
        unseen = Unseen()
        unseen.child = process.pid
        for _ in range(2):
            time.sleep(1.2)
            unseen.look()
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert unseen.as_list() == []
