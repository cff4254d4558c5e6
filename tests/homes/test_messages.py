"""The message of the home itself is followed by the headline, with the real frameworks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.homes.environments import installed, python_of
from tests.homes.homes import HOMES, PROGRAMS
from tests.homes.runner import missing, run
from tests.support.crash import environment

pytestmark = [needs_native, pytest.mark.slow, pytest.mark.every_home, pytest.mark.timeout(200)]

MESSAGES = {
    "ray": r"^ray\.exceptions\.ActorDiedError: ",
    "ray-train": r"^ray\.train\.WorkerGroupError: ",
    "lightning-spawn": r"^torch\.multiprocessing\.spawn\.ProcessExitedException: ",
    "joblib": r"^joblib\.externals\.loky\.process_executor\.TerminatedWorkerError: ",
    "submitit": r"^submitit\.core\.utils\.UncompletedJobError: ",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_exception_of_the_home_is_followed_by_the_headline(name: str, tmp_path: Path) -> None:
    """Without a change in the program; the exception stays what it was."""
    [home] = [home for home in HOMES if home.name == name]
    if reason := missing(home):
        pytest.skip(reason)
    work = tmp_path / "work"
    work.mkdir()
    told = run(home, "fault", work, tmp_path / "run").stderr
    message = re.search(MESSAGES[name], told, re.MULTILINE)
    assert message is not None, told
    below = told[message.start() :]
    assert re.search(r"^pytracer: .* read freed memory, at training\.py:\d+ in", below, re.MULTILINE), told


@pytest.mark.skipif(not installed("lightning"), reason="build/homes/lightning is not installed: make test-homes")
def test_launcher_of_lightning_names_the_death_before_it_ends_the_job(tmp_path: Path) -> None:
    """Rank 0 does not communicate, and is killed by the launcher's thread."""
    python = python_of("lightning")
    done = subprocess.run(
        [python, "-m", "pytracer", "run", "-o", "run", "--", python, PROGRAMS / "observed_ranks.py"],
        env=environment(HOMES_WORK=str(tmp_path)), cwd=tmp_path, capture_output=True, text=True, timeout=150,
        check=False,
    )  # fmt: skip
    message = re.search(r"Child process with PID \d+ terminated with code -11.*\n", done.stderr)
    assert message is not None, done.stderr
    line = r"^pytracer: Rank 1 read through a null pointer .* at observed_ranks\.py:\d+"
    assert re.search(line, done.stderr[message.end() :], re.MULTILINE), done.stderr
    assert done.returncode == 128 + 9
