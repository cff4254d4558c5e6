"""A parent whose pipe is closed at the other end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import PROGRAMS, line_of, traced_run
from tests.support.deaths import summary, verdict

pytestmark = needs_native


@pytest.mark.parametrize("how", ["ends", "closes"])
def test_child_that_had_ended_at_the_other_end_is_named(how: str, tmp_path: Path) -> None:
    """With its status and the line that asked for it. The look-alike: it had closed the pipe, and lived on."""
    command = [sys.executable, str(PROGRAMS / "ended_at_the_other_end.py"), how]
    report = traced_run(*command, run=tmp_path / "run").report
    assert verdict(report) == ("python-exception", "certain")
    line = line_of("ended_at_the_other_end.py", "raise SystemExit(3)")
    words = f"had ended with exit status 3 by SystemExit at ended_at_the_other_end.py:{line} in work"
    assert "raised EOFError" in summary(report)
    assert (words in summary(report)) == (how == "ends")
    assert ("its child" in summary(report)) == (how == "ends")
