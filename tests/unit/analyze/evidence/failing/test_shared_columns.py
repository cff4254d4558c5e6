"""view() of the output of a layer that tensor parallelism cut: what the size of each rank is."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame

SOURCE = "def forward(x):\n    return x.view(2, 5, 3, 6, 8)\nplan = {0}\nforward(1)\n"


@pytest.mark.parametrize(
    ("plan", "size", "named"),
    [
        ("{'qkv': ColwiseParallel()}", 720, True),
        ("{'qkv': ColwiseParallel()}", 800, False),  # no whole share
        ("{'qkv': RowwiseParallel()}", 720, False),
    ],
)
def test_share_of_a_rank(plan: str, size: int, named: bool, tmp_path: Path) -> None:
    """Where the sizes are a whole number apart."""
    file = tmp_path / "train.py"
    file.write_text(SOURCE.format(plan), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9)
    frames = [
        PythonFrame(function="forward", file=str(file), line=2),
        PythonFrame(function="<module>", file=str(file), line=4),
    ]
    message = f"shape '[2, 5, 3, 6, 8]' is invalid for input of size {size}"
    words = explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames).words or ""
    assert ("takes 1440, 2 times as many. ColwiseParallel leaves each rank its share" in words) == named
    assert ("ColwiseParallel" in words) == named
