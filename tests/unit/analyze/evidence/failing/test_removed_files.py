"""Files that the program itself removes: the line that does, and the near cases in which nothing is said of that."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

CACHE = """import os, torch
class Cache:
    def path(self, key):
        return os.path.join(self.folder, f"{{key:03d}}.pt")
    def get(self, key):
        return torch.load(self.path(key))
    def evict(self, rank):
        for name in os.listdir(self.folder):
            {remove}
def main(cache, rank):
    {before}
    for epoch in range(3):
        cache.get(1)
        {call}
    {after}
main(1, 1)
"""
WAY = [("Cache.get", 6), ("main", 13), ("<module>", 16)]
REMOVES = "os.remove(os.path.join(self.folder, name))"
ALONE = "if rank == 0: cache.evict(rank)"


def said(folder: Path, source: str, way: list[tuple[str, int]], rank: int | None, part: str = "001.pt") -> Explanation:
    """Of a file in /x/run that is not there, whose folder is."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    held = SimpleNamespace(rank=rank) if rank is not None else None
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, rank=held, environment={}, argv=("a",))
    values = {"file": f"/x/run/{part}", "file kind": "absent", "file missing part": part, "file folder": "/x/run"}
    error = ExceptionReport(
        type="FileNotFoundError",
        message=f"[Errno 2] No such file or directory: '/x/run/{part}'",
        variables=[VariableReport(name=name, value=value) for name, value in values.items()],
    )
    frames = [PythonFrame(function=name, file=str(file), line=line) for name, line in way]
    library = PythonFrame(function="open", file="/x/site-packages/torch/serialization.py", line=1)
    return explained(snapshot, error, [library, *frames])


def cached(remove: str = REMOVES, call: str = ALONE, before: str = "pass", after: str = "pass") -> str:
    """The program with these lines."""
    return CACHE.format(remove=remove, call=call, before=before, after=after)


@pytest.mark.parametrize("remove", [REMOVES, "os.unlink(self.path(int(name[:-3])))", "os.replace(self.path(2), 'old')"])
def test_file_that_another_rank_removes(remove: str, tmp_path: Path) -> None:
    """By the folder, and by the method that makes the path."""
    found = said(tmp_path, cached(remove), WAY, 1)
    assert found.subject == (
        f"line 9 (`{remove}`) removes files of that folder, below `if rank == 0:` (line 14: rank 0 alone comes there)"
    )
    assert found.words is not None and "dist.all_gather_object" in found.words
    assert "let line 6 make the file again" in found.words


def test_file_that_any_process_removes(tmp_path: Path) -> None:
    """Without a rank nothing is said of others."""
    found = said(tmp_path, cached(call="cache.evict(rank)"), WAY, None)
    assert found.subject == f"line 9 (`{REMOVES}`) removes files of that folder"
    assert found.words is not None and "other ranks" not in found.words


def test_files_of_a_pattern(tmp_path: Path) -> None:
    """A loop over what glob() gives."""
    source = """from pathlib import Path
run = Path('/x/run')
for old in sorted(run.glob('step_*.pt'))[:-2]:
    old.unlink()
open(run / f'step_{1 + 2}.pt')
"""
    assert said(tmp_path, source, [("<module>", 5)], None, "step_3.pt").subject == (
        "line 4 (`old.unlink()`) removes files of that folder"
    )
    other = said(tmp_path, source.replace("step_*", "log_*"), [("<module>", 5)], None, "step_3.pt")
    assert "removes files" not in f"{other.subject} {other.words}"


@pytest.mark.parametrize(
    ("source", "rank"),
    [
        (cached("os.remove(self.path(name) + '.tmp')"), 1),  # a temporary file
        (cached("os.remove(os.path.join(self.other, name))"), 1),  # another folder
        (cached("self.names.remove(name)"), 1),  # a list
        (cached("name = name.replace('a', 'b')"), 1),  # a text
        (cached(call="pass", after="cache.evict(rank)"), 1),  # it comes after the line
        (cached(call="pass"), 1),  # nothing calls it
        (cached(), 0),  # this rank itself
    ],
    ids=["temporary", "folder", "list", "text", "after", "uncalled", "itself"],
)
def test_other_removals_are_not_named(source: str, rank: int, tmp_path: Path) -> None:
    """The look-alikes."""
    found = said(tmp_path, source, WAY, rank)
    assert found.subject is None
    assert "removes files" not in (found.words or "")
