"""Exceptions that a library raised for what another process did: the values of the program's line are no reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.deaths import advice
from tests.support.synth import Box, Frame

PROGRAM = """def main(handle):
    handle = [None]
    share(handle[0])
"""
CLIENT: list[Frame] = [("Client", "/usr/lib/python3.11/multiprocessing/connection.py", 524)]


def told(run: Path, kind: str, inside: list[Frame], message: str = "it said no") -> str:
    script = str(s.program_in(run, PROGRAM))
    stack = [*inside, ("main", script, 3)]
    box = Box(pid=101, ppid=99).at(500)
    box.exception(kind, message, stack, variables=[{"name": "handle", "value": "list of 1"}]).exit(1)
    return advice(build_report(s.load(run, box)))


@pytest.mark.parametrize("kind", ["BrokenPipeError", "EOFError", "wire.ConnectionLostError", "ChildProcessError"])
def test_error_of_the_other_end_is_looked_for_where_it_was_raised(kind: str, run: Path) -> None:
    """And not in what the program's line passes."""
    words = told(run, kind, CLIENT)
    assert "`handle`" not in words and "compare" not in words, words
    assert "not what it refused" not in words  # they may be


@pytest.mark.parametrize(
    "kind",
    [
        "ValueError",
        "wire.NamingTimeout",
        "wire.CallTimeoutError",
        "my.TimeoutExpired",
        "gaierror",
        "ProcessLookupError",
    ],
)
def test_error_that_may_be_about_values_still_names_them(kind: str, run: Path) -> None:
    """The look-alikes: a library refused what it was given; a timeout, a host or a process that the line passes."""
    assert "`handle`" in told(run, kind, CLIENT)
