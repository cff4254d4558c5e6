"""Shared memory that is gone: the line that unlinks it at once, and cases in which only who may have is said."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

SOURCE = """from multiprocessing.shared_memory import SharedMemory
def make(words):
    block = SharedMemory(create=True, size=words.nbytes)
    name = block.name
    {first}
    {second}
    return name
def attach(name):
    return SharedMemory(name=name)
attach(make(words))
"""


def said(folder: Path, first: str, second: str) -> Explanation:
    """Of a rank that attaches to a block that another one has made."""
    file = folder / "train.py"
    file.write_text(SOURCE.format(first=first, second=second), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",))
    error = ExceptionReport(type="FileNotFoundError", message="[Errno 2] No such file or directory: '/psm_1'")
    library = PythonFrame(function="__init__", file="/usr/lib/python3.11/multiprocessing/shared_memory.py", line=104)
    own = [("attach", 9), ("<module>", 10)]
    frames = [PythonFrame(function=name, file=str(file), line=line) for name, line in own]
    return explained(snapshot, error, [library, *frames])


def test_maker_that_unlinks_at_once(tmp_path: Path) -> None:
    """No resource tracker is named."""
    found = said(tmp_path, "block.close()", "block.unlink()")
    assert found.subject == "the block is gone: line 6 (`block.unlink()`) removes the block that line 3 makes"
    assert found.words is not None and "a barrier before it" in found.words and "track=False" not in found.words


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("dist.barrier()", "block.unlink()"),
        ("mp.spawn(attach, args=(name,), nprocs=2)", "block.unlink()"),
        ("train(name)", "block.unlink()"),
        ("other.unlink()", "pass"),
        ("try: use(name)", "finally: block.unlink()"),
    ],
)
def test_maker_that_may_have_waited_is_not_blamed(first: str, second: str, tmp_path: Path) -> None:
    """A barrier before it, another object, a `finally` behind the work."""
    found = said(tmp_path, first, second)
    assert found.subject is not None and "a process that attached before may have removed it" in found.subject
