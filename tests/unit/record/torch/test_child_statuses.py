"""What is recorded of SIGCHLD at an exception."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import signal
{before}
from pytracer.record.torch.child_statuses import child_statuses
print(child_statuses())
"""
IGNORES = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"


@pytest.mark.parametrize(
    ("before", "values", "expected"),
    [
        (IGNORES, "", "[{'name': 'SIGCHLD action', 'value': 'ignored'}]"),
        (IGNORES, "1", "[]"),
        ("", "", "[]"),
        ("signal.signal(signal.SIGCHLD, print)", "", "[]"),
    ],
    ids=["ignored", "no values", "default", "handled"],
)
def test_only_an_ignored_signal_is_recorded(before: str, values: str, expected: str) -> None:
    """Not below --no-values."""
    program = [sys.executable, "-c", _PROGRAM.format(before=before)]
    done = subprocess.run(program, capture_output=True, check=True, text=True, env={"PYTRACER_NO_VALUES": values})
    assert done.stdout.strip() == expected


def test_signal_that_the_process_inherited_as_ignored_is_recorded() -> None:
    """A program that is started with it never sets it."""
    inner = [sys.executable, "-c", _PROGRAM.format(before="")]
    outer = f"import os, signal; {IGNORES}; os.execv({inner[0]!r}, {inner!r})"
    done = subprocess.run([sys.executable, "-c", outer], capture_output=True, check=True, text=True)
    assert "'ignored'" in done.stdout
