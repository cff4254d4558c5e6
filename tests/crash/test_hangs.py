"""What `pytracer run` says by itself about a job that stands still: proofs soon, pauses never."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.cli import pytracer
from tests.support.crash import PROGRAMS, Ended, environment, line_of, torchrun, traced_run

PROGRAM = PROGRAMS / "standing_still.py"
pytestmark = [needs_native, pytest.mark.slow]


def job(kind: str, seconds: float, *until: Path) -> list[str]:
    return torchrun(PROGRAM, kind, str(seconds), *map(str, until))


def killed(kind: str, run: Path) -> Ended:
    return traced_run(*job(kind, 100), run=run, options=("--hang-action", "kill"))


def line(text: str) -> str:
    return f"standing_still.py:{line_of('standing_still.py', text)}"


@pytest.mark.parametrize("kind", ["ended", "daemon"])
def test_rank_that_ended_while_others_wait(kind: str, tmp_path: Path) -> None:
    """Told within 15 s of the wait; the job is ended because that was asked for, and the report has the cause.

    Also where nobody above the process that is left knows it: whoever killed it was the launcher.
    """
    run = tmp_path / "run"
    done = killed(kind, run)
    assert done.status != 0
    said = [words for words in done.stderr.splitlines() if words.startswith("pytracer: deadlock: ")]
    assert len(said) == 1, done.stderr
    assert "Rank 1 has ended with status 0 and never entered all_reduce #4 of the default group" in said[0]
    kept = json.loads((run / "hang.json").read_text(encoding="utf-8"))
    assert kept["deadlock"]["kind"] == "rank-ended"
    assert kept["deadlock"]["since_ns"] < 15e9
    report = done.report
    assert report.verdict is not None
    assert report.verdict.class_ != "external-kill", report.verdict.summary


def test_ranks_in_different_collectives(tmp_path: Path) -> None:
    """Two lines of the program; the verdict is the disagreement, not the SIGTERM that ended the job."""
    run = tmp_path / "run"
    done = killed("apart", run)
    kept = json.loads((run / "hang.json").read_text(encoding="utf-8"))
    assert kept["deadlock"]["kind"] == "different-collectives"
    assert kept["deadlock"]["since_ns"] < 15e9
    assert "ranks disagree on collective #4 of the default group" in kept["deadlock"]["says"]
    assert {item["stacks_by"] for item in kept["processes"] if item["rank"] is not None} == {"black box"}
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "collective-mismatch"
    assert "SIGTERM to process" in done.stderr


def test_ranks_that_wait_for_each_other(tmp_path: Path) -> None:
    """Two groups in two orders."""
    run = tmp_path / "run"
    done = killed("cycle", run)
    kept = json.loads((run / "hang.json").read_text(encoding="utf-8"))
    assert kept["deadlock"]["kind"] == "cycle"
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "hang"


def test_nothing_is_ended_unless_asked(tmp_path: Path) -> None:
    """The line and the stored report; the job ends when timeout(1) ends it, as it would untraced."""
    run = tmp_path / "run"
    done = traced_run("timeout", "25", *job("apart", 100), run=run)
    assert done.status == 124
    assert done.stderr.count("pytracer: deadlock: ") == 1
    assert done.stderr.count("pytracer: nothing was ended; `pytracer attach ") == 1
    kept = json.loads((run / "hang.json").read_text(encoding="utf-8"))
    assert all(item["stacks_by"] is None for item in kept["processes"])  # nobody was asked anything
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "collective-mismatch"


def test_watcher_can_be_switched_off(tmp_path: Path) -> None:
    """Nothing is said or stored."""
    run = tmp_path / "run"
    done = traced_run("timeout", "20", *job("apart", 100), run=run, options=("--hang-action", "off"))
    assert "deadlock" not in done.stderr.partition("external-kill")[0].lower()
    assert not (run / "hang.json").exists()


@pytest.mark.parametrize("kind, minutes", [("checkpoint", 50), ("evaluation", 50), ("compile", 50)])
def test_work_on_one_rank_is_never_an_alarm(tmp_path: Path, kind: str, minutes: int) -> None:
    """Ten times five minutes, in which rank 1 waits in a barrier. A second stands for three minutes."""
    run = tmp_path / "run"
    done = traced_run(*job(kind, minutes / 3), run=run, PYTRACER_HANG_SPEED="180")
    assert done.status == 0, done.stderr
    assert "pytracer: deadlock" not in done.stderr
    assert "pytracer: note" not in done.stderr
    assert not (run / "hang.json").exists()


def test_data_stall_of_ten_times_the_longest_pause_is_no_alarm(tmp_path: Path) -> None:
    """No process works, reads or writes; the job has paused for a tenth of that before."""
    code = (
        "import time, torch, pytracer\n"
        "def steps():\n    for n in range(20):\n        pytracer.step(n); torch.ones(1000).sum(); time.sleep(0.1)\n"
        "steps(); time.sleep(3); steps(); time.sleep(18); steps()\n"
    )
    done = traced_run(sys.executable, "-c", code, run=tmp_path / "run", PYTRACER_HANG_SPEED="100")
    assert done.status == 0, done.stderr
    assert "pytracer: note" not in done.stderr


def test_job_without_progress_gets_one_note(tmp_path: Path) -> None:
    """Rank 0 sleeps for a time that stands for hours: who waits for whom, and no word of a deadlock.

    How long that must be depends on the machine: only ten times the longest pause is a stall, and a busy start has
    pauses of some seconds. So rank 0 sleeps on for a while after the note, in which a second one could come.
    """
    run, noted = tmp_path / "run", tmp_path / "noted"

    def release_rank_0() -> None:
        while not (run / "hang.json").exists() and not ended.wait(0.5):
            pass
        ended.wait(10)
        noted.touch()

    ended = threading.Event()
    release = threading.Thread(target=release_rank_0)
    release.start()
    try:
        done = traced_run(*job("data", 95, noted), run=run, PYTRACER_HANG_SPEED="200")
    finally:
        ended.set()
        release.join()
    assert done.status == 0, done.stderr
    assert "pytracer: deadlock" not in done.stderr
    notes = [words for words in done.stderr.splitlines() if words.startswith("pytracer: note: ")]
    assert len(notes) == 2, done.stderr
    assert "no process has recorded anything for" in notes[0]
    assert "Rank 1 waits in barrier number 4" in notes[0]
    assert "rank 0 has not entered it" in notes[0]


def test_attach_proves_a_deadlock_of_a_job_without_launcher(tmp_path: Path) -> None:
    """Recorded by environment alone nobody watches: `pytracer attach` says the same from another shell."""
    run = tmp_path / "run"
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pytracer", "run", "--hang-action", "off", "-o", str(run), "--", *job("apart", 100)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            found = None
            while found is None and time.monotonic() < started + 90:
                time.sleep(1)
                done = pytracer("attach", run, "--json", "--no-native", cwd=tmp_path)
                with contextlib.suppress(ValueError):
                    found = json.loads(done.stdout).get("deadlock")
        finally:
            os.kill(process.pid, signal.SIGTERM)
    assert found is not None
    assert found["kind"] == "different-collectives"
