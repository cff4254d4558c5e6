"""Tab completion, as the shells ask for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT, clean_environment, pytracer

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", SHELLS)
def test_script_of_each_shell_calls_pytracer_back(shell: str, tmp_path: Path) -> None:
    """The command of docs/guide/settings.md; where the shell is installed, it accepts the script."""
    done = pytracer(cwd=tmp_path, env=clean_environment(_PYTRACER_COMPLETE=f"{shell}_source"))
    assert f"_PYTRACER_COMPLETE={shell}_complete" in done.stdout
    assert f"_PYTRACER_COMPLETE={shell}_source" in (ROOT / "docs/guide/settings.md").read_text()
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run([program, "-n"], input=done.stdout, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pytracer ins", "inspect"),
        ("pytracer inspect --ad", "--advise"),
        ("pytracer run --level l", "light"),
        ("pytracer notify --mlf", "--mlflow"),
    ],
)
def test_commands_options_and_choices_are_completed(words: str, expected: str, tmp_path: Path) -> None:
    """One candidate each."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_PYTRACER_COMPLETE": "bash_complete"}
    done = pytracer(cwd=tmp_path, env=clean_environment(**asked))
    assert done.stdout == f"plain,{expected}\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_itself_completes(tmp_path: Path) -> None:
    """Sources the script and runs the function that it registered, as the tab key does."""
    program = tmp_path / "pytracer"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pytracer "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(_PYTRACER_COMPLETE=bash_source pytracer)"; COMP_WORDS=(pytracer exp); COMP_CWORD=1; '
        '_pytracer_completion pytracer; echo "${COMPREPLY[@]}"; complete -p pytracer'
    )
    path = clean_environment()["PATH"]
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=clean_environment(PATH=f"{tmp_path}:{path}"),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == "export", done.stderr
    assert "-F _pytracer_completion pytracer" in done.stdout
