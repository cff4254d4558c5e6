"""pytracer.toml, [tool.pytracer], variables and options: one precedence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer._errors import UsageError
from pytracer.cli.settings import find_settings
from tests.support.cli import clean_environment, only_line, pytracer


def _level(directory: Path, **environ: str) -> tuple[str | None, str]:
    done = pytracer("doctor", "--config", "--json", cwd=directory, env=clean_environment(**environ))
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)["settings"]
    (row,) = [row for row in rows if (row["command"], row["option"]) == ("run", "--level")]
    return row["value"], row["source"]


def test_variable_comes_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    """As `doctor --config` shows it."""
    assert _level(tmp_path) == (None, "default")
    (tmp_path / "pytracer.toml").write_text('[run]\nlevel = "light"\n')
    assert _level(tmp_path) == ("light", "file")
    assert _level(tmp_path, PYTRACER_LEVEL="ops") == ("ops", "environment")


def test_settings_of_the_file_reach_the_command_and_an_option_overrides_them(tmp_path: Path) -> None:
    """A level that does not exist is refused; the one on the command line is taken instead."""
    (tmp_path / "pytracer.toml").write_text('[run]\nlevel = "loud"\nquiet = true\n')
    done = pytracer("run", "--no-report", "--", "true", cwd=tmp_path)
    assert (done.returncode, "'loud' is not one of" in only_line(done)) == (2, True)
    assert pytracer("run", "--level", "light", "--", "true", cwd=tmp_path).stderr == ""
    (tmp_path / "pytracer.toml").write_text("[inspect]\nno-such-thing = 1\n")
    assert "[inspect] has 'no-such-thing'" in only_line(pytracer("inspect", ".", cwd=tmp_path))


@pytest.mark.parametrize("variable", ["light", ""])
def test_variable_of_the_environment_hides_the_files_value(tmp_path: Path, variable: str) -> None:
    """An empty one does not."""
    (tmp_path / "pytracer.toml").write_text('[run]\nlevel = "ops"\nexplain = true\n')
    defaults = find_settings(tmp_path).defaults({"PYTRACER_LEVEL": variable})
    assert defaults["run"] == ({"explain": True} if variable else {"level": "ops", "explain": True})


def test_nearest_file_counts_and_pytracer_toml_before_pyproject(tmp_path: Path) -> None:
    """From the current directory upwards; a pyproject.toml without our table is no file of ours."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytracer.run]\nhang-timeout = 5\n")
    (inner / "pyproject.toml").write_text('[project]\nname = "pytracer-user"\n')
    assert find_settings(inner).commands == {"run": {"hang_timeout": 5}}
    (tmp_path / "pytracer.toml").write_text("[run]\nhang-timeout = 6\n")
    assert find_settings(inner).path == tmp_path / "pytracer.toml"


def test_file_of_another_user_is_ignored_and_shown(tmp_path: Path) -> None:
    """Who can write into a parent directory, e.g. /tmp, does not decide where reports are sent."""
    inner = tmp_path / "job"
    inner.mkdir()
    planted = tmp_path / "pytracer.toml"
    planted.write_text('[notify]\nwebhook = "http://elsewhere"\n')
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(planted, 12345, -1)
    found = find_settings(inner)
    assert (found.commands, found.ignored) == ({}, (planted,))
    os.chown(inner, 12345, -1)  # the job's own directory is that user's: it may
    assert find_settings(inner).path == planted


@pytest.mark.parametrize("text", ["[run", "level = 3\n", "run = 3\n"])
def test_wrong_file_is_one_line_and_a_foreign_pyproject_is_none(tmp_path: Path, text: str) -> None:
    """pyproject.toml may be broken for other reasons."""
    (tmp_path / "pytracer.toml").write_text(text)
    with pytest.raises(UsageError, match=r"pytracer\.toml"):
        find_settings(tmp_path)
    (tmp_path / "pytracer.toml").rename(tmp_path / "pyproject.toml")
    assert find_settings(tmp_path).path is None


def test_doctor_shows_no_secret(tmp_path: Path) -> None:
    """The variable that has it is shown."""
    (tmp_path / "pytracer.toml").write_text('[notify]\nwebhook = "http://h/s3cret"\nsentry = "$SENTRY"\n')
    done = pytracer("doctor", "--config", cwd=tmp_path)
    assert "s3cret" not in done.stdout
    assert "(set)" in done.stdout
    assert "$SENTRY" in done.stdout


def test_removed_current_directory_has_no_settings(tmp_path: Path) -> None:
    """`pytracer --version` still works."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'import os, sys; os.rmdir(os.getcwd()); from pytracer.cli import main; sys.exit(main(["--version"]))'
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=gone, env=clean_environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.startswith("pytracer, version")) == (0, True), done.stderr
