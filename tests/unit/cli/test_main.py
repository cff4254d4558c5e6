"""The command line as a whole: help, usage, errors in one line, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pytracer import cli
from pytracer._errors import InputError
from pytracer._version import __version__
from tests.support.cli import clean_environment, only_line, pytracer


def test_help_imports_neither_torch_nor_rich(tmp_path: Path) -> None:
    """`pytracer --help` starts fast: nothing heavy is imported."""
    code = (
        "import sys; from pytracer.cli import main; main(['--help']); "
        "sys.exit(bool({'torch', 'rich', 'msgspec', 'elftools'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), cwd=tmp_path, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in cli.COMMANDS)
    assert "Examples:" in done.stdout


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help_with_an_example(name: str, tmp_path: Path) -> None:
    """Each sub-command exists and shows how it is used."""
    done = pytracer(name, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"pytracer {name}" in done.stdout
    assert done.stderr == ""


def test_version_is_the_packages(tmp_path: Path) -> None:
    """`--version` names the version."""
    done = pytracer("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"pytracer, version {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "there is no command 'nonsense'"),
        (["--nonsense"], "no such option"),
        ([], "missing command"),
        (["run"], "missing argument"),
        (["run", "--level", "loud", "true"], "'loud' is not one of"),
        (["run", "--nonsense", "--", "true"], "see `pytracer run --help`"),
        (["run", "--guard=everything", "--", "true"], "guard mode does not know 'everything'"),
        (["inspect"], "name the run directory"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    """A wrong call names what is wrong and where the help is."""
    done = pytracer(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in only_line(done)
    assert done.stdout == ""


def _fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command("doctor")
    def command() -> None:
        raise error

    monkeypatch.setattr(cli._Commands, "get_command", lambda *_: command)


def test_error_of_ours_shows_message_and_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A PytracerError is one line: what happened, then the next step."""
    _fail_with(monkeypatch, InputError("box.blackbox is empty", "name a run"))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == "pytracer: box.blackbox is empty; name a run\n"


def test_unexpected_exception_is_one_line_naming_the_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An internal error shows no traceback unless -vv is given."""
    _fail_with(monkeypatch, KeyError("oops"))
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "a bug in pytracer: KeyError at test_main.py:" in text
    assert cli.main(["-vv", "doctor"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends quietly."""
    _fail_with(monkeypatch, KeyboardInterrupt())
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == ""


def test_closed_pipe_is_silent(tmp_path: Path) -> None:
    """A reader that closes the pipe, such as head, is no error."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "pytracer", "--help"],
        env=clean_environment(), cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141


def test_full_disk_behind_stdout_is_one_line(tmp_path: Path) -> None:
    """Output that cannot be written is an error."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pytracer", "--help"],
            env=clean_environment(), cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left" in only_line(done)
