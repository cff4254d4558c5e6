"""Storages as parts of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.render.text import render_text
from pytracer.report.job import PythonFrame
from tests.support import scenarios as s
from tests.support.deaths import died
from tests.support.synth import Box

BASE = 0x7F50_0000_0000
OPS = f"{s.TORCH}/_ops.py"
CALL = ("OpOverloadPacket.__call__", OPS, 1279)


@pytest.mark.parametrize(
    ("by", "python", "expected"),
    [
        (CALL, [CALL, ("bwd", s.SCRIPT, 7)], 7),
        (CALL, [("__call__", OPS, 1300), ("bwd", s.SCRIPT, 7)], None),  # elsewhere by now
        (CALL, [CALL], None),
        (("bwd", s.SCRIPT, 5), [("bwd", s.SCRIPT, 5), ("main", s.SCRIPT, 20)], None),  # the program's line is recorded
    ],
)
def test_line_of_a_library_gets_the_program_s_line_that_is_in_it_now(
    by: tuple[str, str, int], python: list[tuple[str, str, int]], expected: int | None, run: Path
) -> None:
    """For small storages one frame is recorded: of torch.ops that is a line of torch's, the same for all calls."""
    report = died(run, box=Box(pid=101).alloc(BASE, 4096, by=by), addr=BASE + 4100, code=1, python=python)
    process = next(item for item in report.processes or [] if item.pid == 101)
    assert process.fault is not None and process.fault.storage is not None
    origin = process.fault.storage.allocated
    assert origin is not None
    found = origin.now_below
    assert found == (None if expected is None else PythonFrame(function="bwd", file=s.SCRIPT, line=expected))
    assert ("now called from" in render_text(report)) == (expected is not None)
