"""wait() and its variants behave as the kernel's: results, errors, and cancellation points."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conditions import needs_compiler, needs_core
from tests.support.crash import PROGRAMS, ended, environment, preloaded

pytestmark = [needs_core, needs_compiler]


def test_waits_are_those_of_the_kernel(run: Path) -> None:
    """Line by line as untraced: nothing reaped, bad pointers, EINTR, stopped children, descriptors, cancellation."""
    program = run.parent / "waits"
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, PROGRAMS / "waits.c"], check=True)
    plain = ended([program], environment(), run)
    done = ended([program], preloaded(run), run)
    assert done.stdout == plain.stdout
    assert done.status == plain.status == 0
    waits = [entry for box in done.boxes if box.pid == done.pid for entry in box.waits]
    assert waits, "children that were reaped are still noted"
