"""A job that hangs: the wait graph of a running two-rank gloo job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_native, needs_py_spy
from tests.support.cli import only_line, pytracer
from tests.support.crash import PROGRAMS, environment, torchrun, traced_run

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
pytestmark = [needs_native]


@contextlib.contextmanager
def standing_job(run: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The job, once rank 0 waits for rank 1; ended at the end of the block."""
    job = torchrun(PROGRAMS / "rank_that_is_late.py", "100")
    command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), *options, "--", *job]
    process = subprocess.Popen(
        command, env=environment(), cwd=run.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not waits(run):
            time.sleep(0.5)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def attached(target: str | Path, run: Path) -> dict[str, Any]:
    """`pytracer attach TARGET --json`; empty while nothing runs."""
    done = pytracer("attach", str(target), "--json", "--no-native", cwd=run.parent)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def waits(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = attached(run, run).get("waits", [])
    return found


@pytest.mark.slow
def test_attach_says_who_has_not_come(tmp_path: Path) -> None:
    """Rank 0 is inside the fourth all_reduce, rank 1 sleeps before it; the job is not disturbed."""
    run = tmp_path / "run"
    with standing_job(run) as process:
        report = attached(run, run)
        (wait,) = report["waits"]
        assert (wait["op"], wait["sequence_nr"]) == ("all_reduce", 4)
        assert (wait["waiting"], wait["not_arrived"]) == ([0], [1])
        ranks = {item["rank"]: item for item in report["processes"] if item["rank"] is not None}
        assert ranks[0]["open_collectives"][0]["called_at"]["file"].endswith("rank_that_is_late.py")
        assert ranks[1]["last_collective"]["state"] == "completed"
        assert ranks[1]["threads"][0]["system_call"] in ("clock_nanosleep", None)
        one = attached(ranks[1]["pid"], run)
        assert [item["pid"] for item in one["processes"]] == [ranks[1]["pid"]]
        text = pytracer("attach", run, cwd=tmp_path).stdout
        assert text.startswith("Rank 0 waits in all_reduce number 4 for ")
        assert "rank 1 has not entered it." in text.splitlines()[0]
        assert process.poll() is None


def test_attach_shows_the_line_that_each_rank_is_at(tmp_path: Path) -> None:
    """Each process records its own stacks, and continues."""
    run = tmp_path / "run"
    with standing_job(run):
        ranks = {item["rank"]: item for item in attached(run, run)["processes"] if item["rank"] is not None}
        lines = (PROGRAMS / "rank_that_is_late.py").read_text(encoding="utf-8").splitlines()
        for rank, words in ((0, "dist.all_reduce"), (1, "time.sleep")):
            assert ranks[rank]["stacks_by"] == "black box"
            frames = [item for item in ranks[rank]["threads"][0]["python_stack"] if "rank_that_is_late" in item["file"]]
            assert words in lines[frames[0]["line"] - 1]


@pytest.mark.slow
def test_hang_timeout_reports_once_and_goes_on(tmp_path: Path) -> None:
    """The report appears while the job hangs; then the job ends as untraced."""
    run = tmp_path / "run"
    job = torchrun(PROGRAMS / "rank_that_is_late.py", "9")
    done = traced_run(*job, run=run, options=("--hang-timeout", "3"))
    assert done.status == 0, done.stderr
    assert done.stderr.count("No process has recorded anything for 3 s.") == 1
    assert "Rank 0 waits in all_reduce number 4" in done.stderr
    assert "rank 1 has not entered it" in done.stderr
    assert "nothing was ended" in done.stderr
    kept = json.loads((run / "hang.json").read_text(encoding="utf-8"))
    assert kept["waits"][0]["not_arrived"] == [1]


@pytest.mark.slow
def test_job_that_moves_is_never_called_standing(tmp_path: Path) -> None:
    """Steps of half a second, a time-out of five."""
    code = (
        "import time, torch, pytracer\n"
        "for n in range(16):\n    pytracer.step(n); torch.ones(100000).sum(); time.sleep(0.5)\n"
    )
    done = traced_run(sys.executable, "-c", code, run=tmp_path / "run", options=("--hang-timeout", "5"))
    assert done.status == 0, done.stderr
    assert "recorded anything" not in done.stderr


def test_attach_to_an_ended_run_is_one_line(tmp_path: Path) -> None:
    """The line names the command that explains the run."""
    run = tmp_path / "run"
    traced_run("true", run=run)
    done = pytracer("attach", run, cwd=tmp_path)
    assert done.returncode == 1
    assert "runs on this machine; `pytracer inspect" in only_line(done)


@needs_py_spy
@pytest.mark.slow
def test_py_spy_shows_what_is_not_recorded(tmp_path: Path) -> None:
    """A process without a black box."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        try:
            (seen,) = attached(str(process.pid), tmp_path)["processes"]
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert seen["stacks_by"] == "py-spy"
    assert seen["threads"][0]["python_stack"][0]["line"] == 1


def test_attach_to_a_process_that_is_not_recorded(tmp_path: Path) -> None:
    """Its threads are shown, and that it has no recording; it gets no request signal, which would end it."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment(), stdout=subprocess.PIPE) as process:
        try:
            report = attached(str(process.pid), tmp_path)
            assert process.poll() is None
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert [item["pid"] for item in report["processes"]] == [process.pid]
    assert any("is not recorded" in note for note in report["notes"])
