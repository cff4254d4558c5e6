"""Files and folders that only one rank makes: who makes them, and the near cases in which nothing is said of that."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.analyze.evidence.failing.processes.made_by_one import can_make
from pytracer.report.job import ExceptionReport, PythonFrame

LIBRARY = PythonFrame(function="save", file="/x/site-packages/torch/serialization.py", line=1)
PARENT = ("RuntimeError", "Parent directory /x/run does not exist.")
NO_FILE = ("FileNotFoundError", "[Errno 2] No such file or directory: '/x/run/a'")
DIRECT = """import os, torch
def save(out, rank, data):
    {guard}
        os.makedirs(out, exist_ok=True)
    {between}
    torch.save(data, os.path.join(out, f'{{rank}}.pt'))
save('/x/run', 1, 2)
"""
CALLED = """from pathlib import Path
import json, torch, torch.distributed as dist
def build(out):
    {first}
    with open(out / 'words.json', 'w') as handle:
        json.dump([], handle)
def main(root):
    out = Path(root) / 'cache'
    {call}
    {between}
    return open(out / {name})
main('/x/run')
"""


def said(
    folder: Path, source: str, error: tuple[str, str], way: list[tuple[str, int]], rank: int | None = 1
) -> Explanation:
    """Of an exception with these lines of the program, innermost first, on a rank."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    held = SimpleNamespace(rank=rank) if rank is not None else None
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, rank=held, environment={}, argv=("a",))
    frames = [LIBRARY, *(PythonFrame(function=name, file=str(file), line=line) for name, line in way)]
    return explained(snapshot, ExceptionReport(type=error[0], message=error[1]), frames)


@pytest.mark.parametrize(
    ("guard", "who"),
    [
        ("if rank == 0:", "rank 0"),
        ("if not dist.get_rank():", "the main process"),
        ("if is_main_process():", "the main process"),
        ("if int(os.environ['LOCAL_RANK']) == 0:", "local rank 0"),
        ("if rank in (-1, 0):", "the main process"),
    ],
)
def test_folder_that_one_rank_makes(guard: str, who: str, tmp_path: Path) -> None:
    """By what names the rank."""
    found = said(tmp_path, DIRECT.format(guard=guard, between="pass"), PARENT, [("save", 6), ("<module>", 7)])
    assert found.subject == f"only {who} makes it (line 4), and rank 1 did not wait for that"
    assert found.words is not None
    assert f"below `{guard}` (line 3): {who} alone comes there" in found.words
    assert "Call `os.makedirs(out, exist_ok=True)` on all ranks" in found.words


@pytest.mark.parametrize(
    ("guard", "between", "rank"),
    [
        ("if rank == 0:", "dist.barrier()", 1),
        ("if rank == 0:", "model = DDP(data)", 1),
        ("if rank == 0:", "while not os.path.exists(out): time.sleep(1)", 1),
        ("if rank == 0:", "os.makedirs(out, exist_ok=True)", 1),
        ("if rank == 0:", "out = out + '/b'", 1),
        ("if rank == 0:", "pass", 0),
        ("if rank == 1:", "pass", 1),
        ("if rank == 0:", "pass", None),
        ("if rank >= 0:", "pass", 1),
        ("if node_rank == 0:", "pass", 1),
        ("if rank == 0 or data:", "pass", 1),
        ("if not os.path.exists(out):", "pass", 1),
    ],
)
def test_folder_that_others_make_or_wait_for(guard: str, between: str, rank: int | None, tmp_path: Path) -> None:
    """A barrier, another folder, a test that is not of one rank, the rank itself."""
    source = DIRECT.format(guard=guard, between=between)
    found = said(tmp_path, source, PARENT, [("save", 6), ("<module>", 7)], rank)
    assert "wait" not in f"{found.subject}{found.words}"
    assert found.failure is None


@pytest.mark.parametrize(
    ("first", "call", "where"),
    [
        ("pass", "if rank == 0: build(out)", "below `if rank == 0:` (line 9)"),
        ("if dist.get_rank() != 0: return", "build(out)", "behind `if dist.get_rank() != 0:` (line 4)"),
    ],
)
def test_file_that_a_function_makes_on_one_rank(first: str, call: str, where: str, tmp_path: Path) -> None:
    """The test is around the call, or leaves the function."""
    source = CALLED.format(first=first, call=call, between="pass", name="'words.json'")
    found = said(tmp_path, source, NO_FILE, [("main", 11), ("<module>", 12)])
    assert found.subject == "only rank 0 makes it (line 5), and rank 1 did not wait for that"
    assert found.words is not None and where in found.words
    assert "Put a barrier between the two" in found.words


@pytest.mark.parametrize(
    ("first", "call", "between", "name"),
    [
        ("pass", "build(out)", "pass", "'words.json'"),
        ("pass", "if rank == 0: build(out)", "meet()\ndef meet():\n    dist.barrier()\ndef f(out):\n    pass", "'a'"),
        ("pass", "if rank == 0: build(out)", "pass", "'other.json'"),
        ("pass", "if rank == 0: build(out); dist.barrier()", "pass", "'words.json'"),
        ("pass", "if rank != 0: dist.barrier()\n    if rank == 0: build(out)", "pass", "'words.json'"),
    ],
)
def test_file_that_is_another_or_met_for(first: str, call: str, between: str, name: str, tmp_path: Path) -> None:
    """Also where the ranks meet inside of the branch."""
    source = CALLED.format(first=first, call=call, between=between, name=name)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if text.startswith("    return open"))
    found = said(tmp_path, source, NO_FILE, [("main", line), ("<module>", line + 1)])
    assert "wait" not in f"{found.subject}{found.words}"
    assert found.failure is None


RENAMED = """import os, torch
def save(path, data):
    partial = path + '.tmp'
    torch.save(data, partial)
    os.replace({given})
def fit(out, rank, data):
    best = os.path.join(out, 'state.pt')
    if rank == 0:
        save(best, data)
    {between}
    return torch.load(best)
fit('/x/run', 1, 2)
"""


@pytest.mark.parametrize(
    ("given", "between", "told"),
    [
        ("partial, path", "pass", True),
        ("partial, dst=path", "pass", True),
        ("path, partial", "pass", False),
        ("partial, path", "dist.barrier()", False),
    ],
    ids=["in place", "by its option", "away", "after a barrier"],
)
def test_file_that_one_rank_renames_into_place(given: str, between: str, told: bool, tmp_path: Path) -> None:
    """Written under another name first, as a checkpoint should be; the folder then has a file of a like name."""
    error = ("FileNotFoundError", "[Errno 2] No such file or directory: '/x/run/state.pt'")
    source = RENAMED.format(given=given, between=between)
    found = said(tmp_path, source, error, [("fit", 11), ("<module>", 12)])
    assert (found.subject == "only rank 0 makes it (line 5), and rank 1 did not wait for that") == told


@pytest.mark.parametrize(
    ("call", "makes"),
    [
        ("os.replace(a, b)", True),
        ("path.rename(target)", True),
        ("name.replace('a', 'b')", False),
        ("dataclasses.replace(a, b=1)", False),
        ("table.rename(columns=names)", False),
    ],
)
def test_replacing_text_makes_no_file(call: str, makes: bool) -> None:
    """Nor do a dataclass or a table."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call) and can_make(node) == makes


KEPT = """import os, json, torch, torch.distributed as dist
class Net:
    def save_pretrained(self, folder):
        with open(os.path.join(folder, 'config.json'), 'w') as handle:
            json.dump({}, handle)
    @classmethod
    def from_pretrained(cls, folder):
        return open(os.path.join(folder, 'config.json'))
class Trainer:
    def __init__(self, rank):
        self.rank, self.best = rank, None
    def keep(self, step):
        self.best = os.path.join(self.out, f'checkpoint-{step}')
        if self.rank == 0:
            self.model.save_pretrained(self.best)
        {behind}
    def train(self):
        for step in range(3):
            self.keep(step)
        {between}
        self.model = Net.from_pretrained(self.best)
Trainer(1).train()
"""
WAY = [("Net.from_pretrained", 8), ("Trainer.train", 21), ("<module>", 22)]


def kept(folder: Path, behind: str = "pass", between: str = "pass", anew: str = "") -> Explanation:
    """Of a checkpoint whose folder an attribute keeps."""
    source = KEPT.replace("{behind}", behind).replace("{between}", between) + anew
    return said(folder, source, NO_FILE, WAY)


def test_file_in_a_folder_that_an_attribute_keeps(tmp_path: Path) -> None:
    """One method alone sets it, so that both lines mean the same."""
    found = kept(tmp_path)
    assert found.subject == "only rank 0 makes it (line 4), and rank 1 did not wait for that"


@pytest.mark.parametrize(
    "how",
    [
        {"behind": "dist.barrier()"},
        {"between": "dist.barrier()"},
        {"between": "self.best = other"},
    ],
)
def test_attribute_that_is_set_elsewhere_or_a_barrier_between(how: dict[str, str], tmp_path: Path) -> None:
    """Then it may be another file, or the ranks met."""
    assert "makes it" not in (kept(tmp_path, **how).subject or "")
