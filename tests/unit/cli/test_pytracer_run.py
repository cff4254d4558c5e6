"""`scripts/pytracer-run`: recording by environment alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.decode.job.run_counters import read_run_counters
from tests.conditions import needs_core
from tests.support.cli import SCRIPT, call, clean_environment, only_line

pytestmark = needs_core


def test_command_is_recorded_and_keeps_pid_and_status(tmp_path: Path) -> None:
    """The script becomes the command: same pid, same status, a recording, one line on stderr."""
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
    """There is no parent in between: the waiting process gets the signal, not 128+n."""
    assert call(SCRIPT, "sh", "-c", "kill -SEGV $$", cwd=tmp_path).returncode == -11


def test_ranks_started_one_by_one_share_a_directory_and_one_line(tmp_path: Path) -> None:
    """Several starts with one PYTRACER_DIR are one run: only its first process has a recording and prints a line."""
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
    assert len(list((tmp_path / "shared" / "boxes").iterdir())) == 1
    (counters,) = read_run_counters(tmp_path / "shared")
    assert counters.processes == 4
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


def test_unwritable_directory_costs_one_line(tmp_path: Path) -> None:
    """What cannot be recorded still runs, with its own status and environment."""
    environment = clean_environment(PYTRACER_DIR="/proc/no")
    done = call(SCRIPT, "sh", "-c", "echo started $LD_PRELOAD; exit 7", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (7, "started\n")
    assert "set PYTRACER_DIR to a writable directory; the command runs unrecorded" in only_line(done)


def test_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Nothing is created in it, nor through a link in it."""
    for name, mode in (("open", 0o777), ("group", 0o770)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    (tmp_path / "linked").mkdir(mode=0o700)
    (tmp_path / "victim").mkdir()
    (tmp_path / "linked" / "boxes").symlink_to(tmp_path / "victim")
    for name in ("open", "group", "linked"):
        done = call(SCRIPT, "sh", "-c", "exit 7", cwd=tmp_path, env=clean_environment(PYTRACER_DIR=name))
        assert done.returncode == 7
        assert "another user owns it or may write it" in only_line(done)
    assert not [*(tmp_path / "open").iterdir(), *(tmp_path / "group").iterdir(), *(tmp_path / "victim").iterdir()]


def test_closed_stderr_costs_nothing(tmp_path: Path) -> None:
    """The line about the run directory cannot be written, and the command starts."""
    done = call("sh", "-c", f"exec {SCRIPT} sh -c 'exit 7' 2>&-", cwd=tmp_path)
    assert done.returncode == 7


def test_variables_of_the_script_stay_in_it(tmp_path: Path) -> None:
    """Names of the caller's environment reach the command with the values that they had."""
    names = (
        "word previous argument directory shared remote core candidate here python status folder first library others"
    )
    given = dict.fromkeys(names.split(), "mine")
    code = "import os; print(sorted(name for name, value in os.environ.items() if value == 'mine'))"
    done = call(SCRIPT, sys.executable, "-c", code, cwd=tmp_path, env=clean_environment(**given))
    assert done.stdout == f"{sorted(given)}\n"


def test_wrong_level_is_one_line(tmp_path: Path) -> None:
    """A typing error is refused before the command starts."""
    done = call(SCRIPT, "echo", "started", cwd=tmp_path, env=clean_environment(PYTRACER_LEVEL="loud"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "PYTRACER_LEVEL" in only_line(done)


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
