"""Shared memory that is there already: by a rank that is not set, or by whoever; never advice of folders."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

PASSED = """import os
class World:
    def __init__(self):
        self.rank = int(os.environ.get("RANK", 0))
    @property
    def leader(self):
        return self.rank == 0
class Block:
    def __init__(self, name, create):
        self.shm = SharedMemory(name=name, create=create, size=8)
class Data:
    def __init__(self):
        self.world = World()
        self.block = Block("epochs", self.world.leader)
def fit(rank, count):
    {first}
    data = Data()
mp.spawn(fit, args=(2,), nprocs=2)
"""
GUARDED = """import os
def is_main():
    return int(os.getenv("LOCAL_RANK", "0")) == 0
def attach(name):
    if not is_main():
        return SharedMemory(name)
    return SharedMemory(name, True, 64)
def work(rank):
    return attach("weights")
for rank in range(2):
    Process(target=work, args=(rank,)).start()
"""


def said(folder: Path, source: str, way: list[tuple[str, int]], **environment: str) -> Explanation:
    """`way`: functions and lines, innermost first."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=1, environment=environment, argv=("a",), facts=()
    )
    error = ExceptionReport(
        type="FileExistsError",
        message="[Errno 17] File exists: '/epochs'",
        variables=[VariableReport(name="create", value="True")],
    )
    library = PythonFrame(function="__init__", file="/usr/lib/python3.11/multiprocessing/shared_memory.py", line=104)
    frames = [PythonFrame(function=name, file=str(file), line=line) for name, line in way]
    return explained(snapshot, error, [library, *frames])


WAY = [("Block.__init__", 10), ("Data.__init__", 14), ("fit", 17)]


def test_rank_that_no_started_process_has_is_named(tmp_path: Path) -> None:
    """Through an argument and a property, to the line that takes the default."""
    found = said(tmp_path, PASSED.format(first="pass"), WAY)
    assert found.subject == (
        "that block of shared memory is there already; RANK is not set in this process, which line 4 then takes for 0"
    )
    assert found.words is not None and "Set RANK, LOCAL_RANK and WORLD_SIZE in os.environ first" in found.words


def test_rank_of_a_test_around_is_named(tmp_path: Path) -> None:
    """`if not is_main(): return ...` above the line that creates it."""
    found = said(tmp_path, GUARDED, [("attach", 7), ("work", 9)])
    assert found.subject is not None and "LOCAL_RANK is not set in this process, which line 3 then" in found.subject


@pytest.mark.parametrize(
    ("first", "environment"),
    [
        ("pass", {"RANK": "0"}),
        ('os.environ["RANK"] = str(rank)', {}),
        ("os.environ.update(RANK=str(rank))", {}),
        ("os.environ.update(ranks(rank))", {}),
    ],
)
def test_rank_that_is_set_is_not_blamed(first: str, environment: dict[str, str], tmp_path: Path) -> None:
    """By the launcher, or by the program: an earlier run, or another rank, is all that can be said."""
    found = said(tmp_path, PASSED.format(first=first), WAY, **environment)
    assert found.subject == "a block of shared memory of that name is there already"
    assert found.words is not None and "or one that ended before left it behind" in found.words
    assert "makedirs" not in found.words and "unlink() it at" in found.words


def test_program_that_starts_no_process_is_not_blamed(tmp_path: Path) -> None:
    """One process, without torchrun: what is there was left by another run."""
    source = PASSED.format(first="pass").replace("mp.spawn(fit, args=(2,), nprocs=2)", "fit(0, 1)")
    found = said(tmp_path, source, [*WAY, ("<module>", 18)])
    assert found.subject == "a block of shared memory of that name is there already"
