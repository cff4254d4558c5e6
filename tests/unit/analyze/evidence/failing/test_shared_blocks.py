"""Blocks of multiprocessing.shared_memory that are gone: what the headline says of a program that makes them itself."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame


@pytest.mark.parametrize(
    ("made", "subject"),
    [
        ("SharedMemory(create=True, size=8)", "the block is gone: a process that attached before may have removed it"),
        ("SharedMemory(name=other)", "the shared memory of that name is gone, or was never made"),
    ],
)
def test_block_that_is_gone_may_have_been_removed_by_an_attached_process(
    made: str, subject: str, tmp_path: Path
) -> None:
    """Only where the program makes blocks."""
    file = tmp_path / "evaluate.py"
    file.write_text(f"from multiprocessing.shared_memory import SharedMemory\nx = {made}\nSharedMemory(name=given)\n")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("evaluate.py",), environment={})
    report = ExceptionReport(type="FileNotFoundError", message="[Errno 2] No such file or directory: '/psm_1'")
    library = PythonFrame(function="__init__", file="/usr/lib/python3.11/multiprocessing/shared_memory.py", line=104)
    stack = [library, PythonFrame(function="<module>", file=str(file), line=3)]
    assert (explained(snapshot, report, stack).subject or "").startswith(subject)
