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
    ],
    ids=["temporary", "folder", "list", "text", "after", "uncalled"],
)
def test_other_removals_are_not_named(source: str, rank: int, tmp_path: Path) -> None:
    """The look-alikes."""
    found = said(tmp_path, source, WAY, rank)
    assert found.subject is None
    assert "removes files" not in (found.words or "")


KEPT = """import os, torch
class Keeper:
    def __init__(self, folder, rank):
        self.folder, self.rank, self.best = folder, rank, []
    def update(self, epoch, loss, model):
        path = os.path.join(self.folder, f"epoch={{epoch}}.ckpt")
        {store}
        dropped = self.best[2:]
        if self.rank == 0:
            for _, old in dropped:
                os.remove(old)
    @property
    def best_path(self):
        return {best}
def main(folder, rank, model):
    keeper = Keeper(folder, rank)
    for epoch in range(4):
        loss = {loss}
        keeper.update(epoch, loss, model)
    return torch.load({load})
def evaluate(model):
    return model.loss().item()
def shared(model):
    total = model.loss()
    dist.all_reduce(total)
    return total.item()
main(1, 1, 2)
"""
IN_MAIN = [("main", 20), ("<module>", 27)]


def keeping(store: str = "self.best.append((loss, path))", best: str = "self.best[0][1]",
            load: str = "keeper.best_path", loss: str = "evaluate(model)") -> str:  # fmt: skip
    return KEPT.format(store=store, best=best, load=load, loss=loss)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"store": "heapq.heappush(self.best, (loss, path))", "best": "min(self.best)[1]"},
        {"load": "keeper.best[0][1]"},
    ],
)
def test_file_that_rank_0_removed_by_its_own_measure(how: dict[str, str], tmp_path: Path) -> None:
    """Each rank has a list of its own, ordered by what it measured itself."""
    found = said(tmp_path, keeping(**how), IN_MAIN, 1, "epoch=1.ckpt")
    assert found.subject == (
        "line 11 (`os.remove(old)`) removes files of that folder, below `if self.rank == 0:` (line 9: rank 0 alone "
        "comes there); each rank keeps files by its own `loss`"
    )
    assert found.words is not None and "Each rank keeps `best` (line 7) by its own `loss`" in found.words


@pytest.mark.parametrize(
    "how",
    [
        {"loss": "dist.all_reduce(loss) or loss"},
        {"loss": "shared(model)"},
        {"loss": "metric.compute()"},
        {"store": "self.best.append((epoch, path))"},
    ],
)
def test_what_is_the_same_on_all_ranks_is_not_told_as_their_own(how: dict[str, str], tmp_path: Path) -> None:
    found = said(tmp_path, keeping(**how), IN_MAIN, 1, "epoch=1.ckpt")
    assert found.subject is not None and "its own" not in found.subject
    assert found.words is not None and "by its own" not in found.words


@pytest.mark.parametrize(
    ("how", "part"),
    [({}, "last.ckpt"), ({"store": "self.names.append((loss, path))"}, "epoch=1.ckpt")],
    ids=["another file", "another list"],
)
def test_other_files_and_lists_are_not_what_it_removes(how: dict[str, str], part: str, tmp_path: Path) -> None:
    found = said(tmp_path, keeping(**how), IN_MAIN, 1, part)
    assert found.subject is None or "os.remove(old)" not in found.subject


def test_rank_that_removed_its_own_best_file(tmp_path: Path) -> None:
    """Rank 0 comes to that line itself; the path is one of two attributes that are set together."""
    source = """import glob, os, torch
class Keeper:
    def __init__(self, folder):
        self.folder, self.best, self.best_path = folder, 9, None
    def offer(self, loss, rank):
        path = os.path.join(self.folder, f"step{loss:04d}.pt")
        if rank == 0:
            for old in sorted(glob.glob(os.path.join(self.folder, "step*.pt")))[:-2]:
                os.remove(old)
        self.best, self.best_path = loss, path
keeper = Keeper("/x/run")
for loss in range(3):
    keeper.offer(loss, 0)
torch.load(keeper.best_path)
"""
    found = said(tmp_path, source, [("<module>", 14)], 0, "step0001.pt")
    assert found.subject == "line 9 (`os.remove(old)`) removes files of that folder"
    assert found.words is not None and "See whether it had removed this one" in found.words
    other = said(tmp_path, source, [("<module>", 14)], 1, "step0001.pt")
    assert other.subject is not None and "rank 0 alone comes there" in other.subject


def test_attribute_of_another_class_is_another_path(tmp_path: Path) -> None:
    """Two classes with a `path`, of which one removes what is in its own folder."""
    source = """import json, os
class Cache:
    def __init__(self, root):
        self.root = root
        self.path = os.path.join(self.root, "index.json")
    def clear(self):
        for name in os.listdir(self.root):
            os.remove(os.path.join(self.root, name))
class Reader:
    def __init__(self, path):
        self.path = path
    def read(self):
        return json.load(open(self.path))
def main(reader):
    Cache("cache").clear()
    reader.read()
main(Reader("/x/run/index.json"))
"""
    way = [("Reader.read", 13), ("main", 16), ("<module>", 17)]
    found = said(tmp_path, source, way, None, "index.json")
    assert "removes files" not in f"{found.subject} {found.words}"
