"""`pytracer run --guard` on the command line, and `doctor` about guard mode."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytracer.cli.checks import guard
from pytracer.cli.checks.answer import LIMITED, WORKS
from tests.conditions import needs_core
from tests.support.cli import clean_environment, only_line, pytracer

SHOW = "import os, sys; print(os.environ.get('PYTRACER_GUARD'), *sys.argv[1:])"


@needs_core
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--guard", "--"], "all"),
        (["--guard"], "all"),
        (["--guard=sample:1000"], "sample:1000"),
        (["-o", "elsewhere", "--guard=all,side:underrun", "--"], "all,side:underrun"),
        ([], "None"),
        (["--"], "None"),
    ],
)
def test_job_is_told_what_to_guard(options: list[str], words: str, tmp_path: Path) -> None:
    """`--guard` takes its words after `=` only; an option of that name behind the command belongs to the command."""
    done = pytracer("run", "--quiet", *options, sys.executable, "-c", SHOW, "--guard", "7", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{words} --guard 7\n"), done.stderr


@needs_core
def test_alignment_that_may_change_results_is_said_at_the_start(tmp_path: Path) -> None:
    """Before the numbers are used."""
    done = pytracer("run", "--quiet", "--guard=align:4", "--", "true", cwd=tmp_path)
    assert "aligned to 4 bytes instead of 64" in only_line(done)


@needs_core
def test_variable_is_checked_like_the_option(tmp_path: Path) -> None:
    """The launcher reports a typing error, so that it is not ignored by every process."""
    done = pytracer("run", "--", "true", cwd=tmp_path, env=clean_environment(PYTRACER_GUARD="al"))
    assert done.returncode == 2
    assert "guard mode does not know 'al'" in only_line(done)


def test_doctor_names_the_mechanism_of_this_kernel() -> None:
    """Markers, or mprotect with how many storages that allows."""
    assert guard.guard(0, 65530).result == WORKS
    fallback = guard.guard(22, 65530)
    assert fallback.result == LIMITED and "mprotect" in fallback.detail and "8191 live storages" in fallback.detail
    assert "6.13" in fallback.next
    assert guard.guard(None, 65530).result == LIMITED


@needs_core
def test_doctor_tries_it_here() -> None:
    """The answer is about this machine."""
    assert guard.check_guard().id == "guard"
