"""Jobs that a scheduler or a time limit ended: by whom is on record, though nobody saw the end, and why it came."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.support.cli import SCRIPT
from tests.support.crash import PROGRAMS, Ended, environment, line_of, traced_run

pytestmark = [needs_core, needs_native]
READY = "import time, torch; torch.ones(8).sum(); print('ready', flush=True); time.sleep(60)"
HANDLES = "import signal; signal.signal(signal.SIGTERM, lambda *a: None)\n"
DIES = "import os, torch; torch.ones(8).sum(); os.kill(os.getpid(), 9)"
FORKS = "forks_after_openmp.py"


def below_slurmstepd(run: Path, code: str) -> Ended:
    """As under srun: nothing above the program is traced, so that nobody records how it ends."""
    start = 'exec -a "slurmstepd: [4711.0]" "$0" "$@"'
    words = [sys.executable, PROGRAMS / "stepd.py", "2", SCRIPT, sys.executable, "-c", code]
    command = ["bash", "-c", start, *map(str, words)]
    env = environment(PYTRACER_DIR=str(run), SLURM_JOB_ID="4711")
    subprocess.run(command, env=env, stderr=subprocess.DEVNULL, timeout=100, check=False)
    return Ended(0, 0, "", "", run)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("code", "confidence", "says"),
    [(READY, "certain", "was ended by SIGTERM"), (HANDLES + READY, "likely", "received SIGTERM")],
    ids=["default", "handled"],
)
def test_end_by_slurm_names_slurmstepd(code: str, confidence: str, says: str, run: Path) -> None:
    """The last record has the sender; Slurm's accounting knows the reason."""
    verdict = below_slurmstepd(run, code).report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == ("external-kill", confidence), verdict.summary
    assert says in (verdict.summary or "") and "(slurmstepd: [4711.0])" in (verdict.summary or "")
    assert "sacct -j 4711" in (verdict.advice or "")


def test_end_without_a_signal_on_record_stays_unknown(run: Path) -> None:
    """The look-alike: SIGKILL leaves nothing, and the SIGTERM that would have come is not made up."""
    verdict = below_slurmstepd(run, DIES).report.verdict
    assert verdict is not None
    assert verdict.class_ == "unknown", verdict.summary


@pytest.mark.quick(1)
@pytest.mark.parametrize("turn", range(3))
def test_signal_to_two_threads_at_once_leaves_the_stacks(turn: int, run: Path) -> None:
    """timeout(1) signals its child and then the group: the second thread must not end the process meanwhile."""
    done = traced_run(sys.executable, PROGRAMS / "ended_twice.py", run=run)
    assert done.status == 128 + signal.SIGTERM
    (box,) = done.boxes
    ending = box.ending
    assert ending is not None
    assert [frame.function for frame in ending.python_stack][:1] == ["wait_here"]


@pytest.mark.slow
def test_fork_after_openmp_is_the_reason_and_the_time_limit_its_end(run: Path) -> None:
    """pytorch#17199: the child waits below libgomp, its parent for the child."""
    done = traced_run("timeout", "15", sys.executable, PROGRAMS / FORKS, run=run, OMP_NUM_THREADS="2")
    assert done.status == 124
    verdict = done.report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == ("hang", "likely"), verdict.summary
    line = line_of(FORKS, "torch.ones(400, 400).sum()")
    assert f"waited in the OpenMP runtime of a forked child at {FORKS}:{line} in total" in (verdict.summary or "")
    assert "ended it at a time limit" in (verdict.summary or "")
    assert "spawn" in (verdict.advice or "")
