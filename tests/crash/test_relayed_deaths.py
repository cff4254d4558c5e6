"""An exception about another process's death carries the headline of the report; look-alikes do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import Ended, line_of, victim

PROGRAM = "dead_child.py"
pytestmark = [needs_native]


def added(traced: Ended) -> list[str]:
    """Lines on stderr that are ours."""
    return [line for line in traced.stderr.splitlines() if line.startswith("pytracer: ")]


@pytest.mark.parametrize("how", ["spawn", "pool", "from"])
@pytest.mark.quick(1)
def test_exception_of_the_parent_is_followed_by_what_became_of_the_child(tmp_path: Path, how: str) -> None:
    """As the last line, below the exception; status, stdout and the exception are as untraced."""
    traced = victim(PROGRAM, how, run=tmp_path / "run")
    untraced = victim(PROGRAM, how, run=tmp_path / "none", way="untraced")
    place = f"at {PROGRAM}:{line_of(PROGRAM, '# dies')} in read"
    [line] = added(traced)
    assert "read through a null pointer" in line
    assert place in line
    assert traced.stderr.splitlines()[-2:] == [untraced.stderr.splitlines()[-1], line]
    assert (traced.status, traced.stdout) == (untraced.status, untraced.stdout) == (1, "")


@pytest.mark.parametrize("how", ["other", "caught"])
@pytest.mark.quick(1)
def test_exception_about_something_else_is_printed_as_it_is(tmp_path: Path, how: str) -> None:
    """Also where a child did die before."""
    traced = victim(PROGRAM, how, run=tmp_path / "run")
    untraced = victim(PROGRAM, how, run=tmp_path / "none", way="untraced")
    assert added(traced) == []
    assert (traced.status, traced.stdout, traced.stderr) == (untraced.status, untraced.stdout, untraced.stderr)
