"""A real allocation that fails: the report names the lines that held the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.support.crash import line_of, victim

pytestmark = [needs_core, needs_native]


@pytest.mark.parametrize("way", ["torch", "bytes"])
@pytest.mark.quick(1)
def test_lines_that_held_the_memory_are_named(way: str, run: Path) -> None:
    """12 tensors of 8 MiB, which the interpreter frees before the process is gone."""
    program = "failed_allocation.py"
    verdict = victim(program, way, run=run).report.verdict
    assert verdict is not None and verdict.class_ == "python-exception"
    line = line_of(program, "kept.append(")
    told = [item for item in verdict.evidence or [] if "CPU storages" in item]
    assert len(told) == 1 and f"96.0 MiB in 12 storages allocated at {program}:{line} in cache" in told[0]
    assert f"Look first at {program}:{line} in cache" in (verdict.advice or "")
