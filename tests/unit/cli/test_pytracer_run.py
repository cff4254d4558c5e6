"""`scripts/pytracer-run`: recording by environment alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_core
from tests.support.cli import SCRIPT, call, clean_environment, only_line

pytestmark = needs_core


def test_command_is_recorded_and_keeps_pid_and_status(tmp_path: Path) -> None:
    """The script becomes the command: same pid, same status, a box, one line on stderr."""
    process = subprocess.Popen(
        [SCRIPT, "sh", "-c", "echo $$; exit 7"], cwd=tmp_path, env=clean_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = process.communicate()
    assert process.returncode == 7
    assert out == f"{process.pid}\n"
    assert err == f"pytracer-run: recording in {(tmp_path / 'runs' / 'latest').resolve()}\n"
    assert [path.name.split(".")[-2] for path in (tmp_path / "runs" / "latest" / "boxes").iterdir()] == [
        str(process.pid)
    ]


def test_signal_ends_the_command_itself(tmp_path: Path) -> None:
    """No parent stands between: the waiting process sees the signal, not 128+n."""
    assert call(SCRIPT, "sh", "-c", "kill -SEGV $$", cwd=tmp_path).returncode == -11


def test_ranks_started_one_by_one_share_a_directory_and_one_line(tmp_path: Path) -> None:
    """Several starts with one PYTRACER_DIR leave their boxes side by side; only the first speaks."""
    environment = clean_environment(PYTRACER_DIR="shared", PYTRACER_LEVEL="light")
    processes = [
        subprocess.Popen(
            [SCRIPT, "sh", "-c", "echo $PYTRACER_LEVEL $PYTRACER_DIR"], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    ends = [process.communicate() for process in processes]
    assert {out for out, _ in ends} == {f"light {tmp_path / 'shared'}\n"}
    assert sorted(err.count("\n") for _, err in ends) == [0, 0, 0, 1]
    assert len(list((tmp_path / "shared" / "boxes").iterdir())) == 4
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "missing command"),
        (["--nonsense"], 2, "no such option"),
        (["no-such-command"], 127, "there is no command"),
        (["./no-such-file"], 127, "check the path"),
        (["/etc/passwd"], 126, "cannot execute"),
    ],
)
def test_wrong_call_is_one_line(arguments: list[str], status: int, words: str, tmp_path: Path) -> None:
    """Same statuses as a shell, one line, nothing left behind."""
    done = call(SCRIPT, *arguments, cwd=tmp_path)
    assert done.returncode == status
    assert words in only_line(done)
    assert not list(tmp_path.iterdir())


def test_unwritable_directory_and_wrong_level_are_one_line(tmp_path: Path) -> None:
    """What cannot be recorded is refused before the command starts."""
    for environment, status in (({"PYTRACER_DIR": "/proc/no"}, 1), ({"PYTRACER_LEVEL": "loud"}, 2)):
        done = call(SCRIPT, "echo", "started", cwd=tmp_path, env=clean_environment(**environment))
        assert done.returncode == status
        assert done.stdout == ""
        assert next(iter(environment)) in only_line(done)


def test_word_of_the_run_is_the_scripts(tmp_path: Path) -> None:
    """Both launchers name a run in the same way."""
    (tmp_path / "tr ain.py").write_text("", encoding="utf-8")
    for number, arguments in enumerate((["-X", "dev", "tr ain.py", "b.py"], ["-m", "this"], ["-c", "pass"])):
        call(SCRIPT, sys.executable, *arguments, cwd=tmp_path)
        name = os.readlink(tmp_path / "runs" / "latest")
        assert name.split("-")[2] == ("tr_ain", "this", Path(sys.executable).name)[number]


def test_help_needs_no_library(tmp_path: Path) -> None:
    """--help prints usage on stdout."""
    done = call(SCRIPT, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: pytracer-run")
