"""Files that one rank writes by a path that each rank makes for itself, and paths that the ranks may share."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

SOURCE = """import os, tempfile, time, uuid
import torch, torch.distributed as dist
from datetime import datetime
class Run:
    def __init__(self, root, rank):
        self.rank = rank
        {sets}
    def save(self):
        {guard}
            torch.save(1, os.path.join(self.dir, "best.pt"))
        dist.barrier()
    def test(self):
        return torch.load(os.path.join(self.dir, "best.pt"))
run = Run("exp", 1)
run.save()
run.test()
"""
TIME = 'self.dir = os.path.join(root, datetime.now().strftime("%H%M%S"))'


def said(folder: Path, sets: str, guard: str = "if self.rank == 0:", rank: int | None = 1) -> Explanation:
    """Of a rank that finds no file there."""
    file = folder / "train.py"
    file.write_text(SOURCE.format(sets=sets, guard=guard), encoding="utf-8")
    held = SimpleNamespace(rank=rank) if rank is not None else None
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, rank=held, environment={}, argv=("a",))
    error = ExceptionReport(
        type="FileNotFoundError", message="[Errno 2] No such file or directory: 'exp/101112/best.pt'"
    )
    library = PythonFrame(function="load", file="/x/site-packages/torch/serialization.py", line=1)
    way = [("Run.test", 13), ("<module>", 16)]
    return explained(snapshot, error, [library, *(PythonFrame(function=n, file=str(file), line=i) for n, i in way)])


@pytest.mark.parametrize(
    ("sets", "sure", "why"),
    [
        (TIME, False, "(`datetime.now`) takes the time of each process"),
        ('self.dir = f"{root}/{int(time.time())}"', False, "(`time.time`) takes the time of each process"),
        ("self.dir = os.path.join(root, uuid.uuid4().hex)", True, "(`uuid.uuid4`) gives each process another one"),
        ("self.dir = tempfile.mkdtemp(dir=root)", True, "(`tempfile.mkdtemp`) gives each process another one"),
    ],
)
def test_path_of_each_rank(sets: str, sure: bool, why: str, tmp_path: Path) -> None:
    """No barrier and no folder of the start is named."""
    found = said(tmp_path, sets)
    looks = "looks" if sure else "may look"
    assert found.subject == (
        f"each rank {looks} at another path by `self.dir`, as line 7 {why}, and line 10 writes there on rank 0 only"
    )
    assert found.words is not None and "broadcast it (broadcast_object_list)" in found.words


@pytest.mark.parametrize(
    ("sets", "guard", "rank"),
    [
        ("self.dir = os.path.join(root, 'a')", "if self.rank == 0:", 1),
        (TIME, "if True:", 1),
        (TIME, "if self.rank == 0:", 0),
        (TIME, "if self.rank == 0:", None),
        (f"{TIME}; held = [self.dir]; dist.broadcast_object_list(held); self.dir = held[0]", "if self.rank == 0:", 1),
    ],
    ids=["shared", "all write", "the writer", "no rank", "broadcast"],
)
def test_path_that_the_ranks_may_share(sets: str, guard: str, rank: int | None, tmp_path: Path) -> None:
    """A plain one, one that each rank writes itself, one that is handed out."""
    assert "another path" not in (said(tmp_path, sets, guard, rank).subject or "")


def test_variable_of_another_function_is_another_path(tmp_path: Path) -> None:
    """Rank 0 writes by a `path` of its own."""
    sets = """self.dir = root
    def log(self):
        path = os.path.join("logs", "m.json")
        if self.rank == 0:
            torch.save(1, path)
    def load(self):
        path = os.path.join("exp", str(int(time.time())))
        return torch.load(path)"""
    file = tmp_path / "train.py"
    file.write_text(SOURCE.format(sets=sets, guard="if True:").replace("run.test()", "run.load()"), encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=SimpleNamespace(rank=1), environment={}, argv=("a",)
    )
    error = ExceptionReport(type="FileNotFoundError", message="[Errno 2] No such file or directory: 'exp/101112'")
    library = PythonFrame(function="load", file="/x/site-packages/torch/serialization.py", line=1)
    way = [PythonFrame(function=n, file=str(file), line=i) for n, i in (("Run.load", 14), ("<module>", 23))]
    assert "another path" not in (explained(snapshot, error, [library, *way]).subject or "")
