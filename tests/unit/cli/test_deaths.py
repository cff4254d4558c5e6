"""Deaths that are told while the job goes on: how often, and the command of `--on-death`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytracer.cli import deaths
from pytracer.cli.deaths import DeathWatch, run_command
from pytracer.launcher.run_directory import Run
from pytracer.report.job import Report


def test_many_batches_are_told_once_a_minute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workers that crash again and again do not fill the log; what waits is told together."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = DeathWatch("run", lines=True, command=None)
    told = 0
    for second in range(121):
        now = 1000.0 + second
        if watch.is_due([(second, 1)]):
            watch.next_batch(Run(tmp_path, tmp_path))
            told += 1
    assert told == 5 + 1
    assert watch.is_due([]) is False


def test_nothing_is_due_when_nobody_wants_it() -> None:
    """Neither lines nor a command."""
    assert not DeathWatch("run", lines=False, command=None).is_due([(1, 1)])
    assert DeathWatch("run", lines=False, command="true").is_due([(1, 1)])
    assert not DeathWatch("run", lines=True, command=None).is_due([])


def test_command_that_hangs_is_ended_with_its_children(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It does not delay the launcher, and nothing of it stays."""
    alive = tmp_path / "alive"
    run_command(f"(sleep 2; touch {alive}) & sleep 60", Report(), time.monotonic() + 0.5)
    time.sleep(2)
    assert not alive.exists()
    assert capfd.readouterr().err == (
        f"pytracer: the command of --on-death was ended: it took more than {deaths.COMMAND_SECONDS} s\n"
    )


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("exit 7", "pytracer: the command of --on-death exited with status 7\n"),
        ("kill -9 $$", "pytracer: the command of --on-death was ended by SIGKILL\n"),
        ("exec <&-; exit 0", ""),
    ],
)
def test_failure_of_the_command_is_one_line(command: str, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Also of one that does not read the report, which is no failure."""
    run_command(command, Report(), time.monotonic() + 30)
    assert capfd.readouterr().err == line
