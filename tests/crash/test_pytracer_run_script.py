"""scripts/pytracer-run: recording by environment alone, where no parent process is possible."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_core, needs_native
from tests.support.cli import SCRIPT
from tests.support.crash import PROGRAMS, Ended, ended, environment, new_store, own_frames

pytestmark = [needs_core, needs_compiler]


def test_death_is_recorded_and_the_handler_says_how_to_read_it(run: Path) -> None:
    """The script executes the program: same pid and status; the recording has the fault, stderr names the next step."""
    done = ended([SCRIPT, sys.executable, PROGRAMS / "null_dereference.py"], environment(PYTRACER_DIR=str(run)), run)
    assert (done.status, done.stdout) == (-signal.SIGSEGV, "before\n")
    assert done.box.crash is not None
    assert own_frames(done.box.crash.python_stack)[0][0] == "learning_rate"
    first, last = done.stderr.splitlines()
    assert first == f"pytracer-run: recording in {run}"
    expected = f"pytracer: process {done.pid} died of SIGSEGV at 0x18; to see why: pytracer inspect {run}"
    assert last == expected
    verdict = done.report.verdict
    assert verdict is not None
    assert verdict.class_ == "null-dereference"


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("_exit", 4), ("terminate", -15), ("kill", -9), ("raise", 1)])
def test_status_is_the_programs_own(how: str, status: int, run: Path) -> None:
    """There is no process between the program and the one that waits for it."""
    env = environment(PYTRACER_DIR=str(run))
    done = ended([SCRIPT, sys.executable, PROGRAMS / "ends_as_told.py", how], env, run)
    assert done.status == status
    assert done.stdout == "output without a newline at its end"
    assert done.box.state == ("EXITING" if status >= 0 else "RECORDING")


@needs_native
def test_ranks_started_one_by_one_are_one_job(run: Path) -> None:
    """Two ranks share PYTRACER_DIR: one report names the dead rank, and the all-reduce in which the other waited."""
    base = {"PYTRACER_DIR": str(run), "STORE": new_store(run), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [SCRIPT, sys.executable, PROGRAMS / "rank_started_by_hand.py"], cwd=run.parent,
            env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **base), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [9, -signal.SIGSEGV], said
    assert "".join(said).count("pytracer-run: recording in") == 1
    report = Ended(0, 0, "", "", run).report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.rank) == ("null-dereference", 1)
    processes = {p.rank: p for p in report.processes or ()}
    done, failed = processes[1].last_collective, processes[0].last_collective
    assert done is not None and failed is not None
    assert (done.state, failed.state) == ("completed", "failed")
    assert failed.sequence_nr == (done.sequence_nr or 0) + 1
    assert (processes[1].primary, processes[0].primary) == (True, False)
