"""Memory that is hardly tensors: which containers of the program only grow."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.growing_stores import growing_stores, mostly_others
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

CACHE = """class Folder:
    def __init__(self, files):
        self.files, self.memory = files, {}
    def image(self, key):
        if key not in self.memory:
            self.memory[key] = read(key)
        return self.memory[key]
"""
LISTED = """class Replay:
    def __init__(self):
        self.rows = []
    def keep(self, row):
        self.rows.append(row)
"""
MODULE = """frames = []
for frame in video:
    frames.append(decode(frame))
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (CACHE, ["train.py:6 (`self.memory[key] = read(key)`)"]),
        (LISTED, ["train.py:5 (`self.rows.append(row)`)"]),
        (MODULE, ["train.py:3 (`frames.append(decode(frame))`)"]),
        (CACHE + "    def reset(self):\n        self.memory.clear()\n", []),
        (CACHE.replace("read(key)", "len(key)"), []),
        (CACHE.replace("[key] = read", '["last"] = read'), []),
        (LISTED.replace("        self.rows = []\n", "        self.rows = deque(maxlen=100)\n"), []),
        (LISTED.replace("append(row)", "append(row.item())"), []),
    ],
    ids=["cache", "list", "module", "emptied", "numbers", "one key", "bounded", "items"],
)
def test_container_that_only_grows_is_found(source: str, words: list[str]) -> None:
    """None that is emptied, bounded, replaced, or holds numbers alone."""
    assert growing_stores({"/job/train.py": ast.parse(source)}) == words


@pytest.mark.parametrize(
    ("resident", "tensors", "told"),
    [(800 << 20, 20 << 20, True), (800 << 20, 300 << 20, False), (300 << 20, 1 << 20, False), (None, 0, False)],
    ids=["others", "tensors", "little", "not recorded"],
)
def test_memory_that_is_hardly_tensors_is_told(resident: int | None, tensors: int, told: bool, tmp_path: Path) -> None:
    """With both sizes, and the only line that keeps more and more."""
    file = tmp_path / "train.py"
    file.write_text(CACHE, encoding="utf-8")
    held = [VariableReport(name="limit address space", value=str(1 << 30))]
    held += [VariableReport(name="used memory", value=str(resident))] if resident is not None else []
    snapshot = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",))
    view: Any = SimpleNamespace(
        exception=ExceptionReport(type="RuntimeError", variables=held),
        exception_stack_of_program=[PythonFrame(function="main", file=str(file), line=1)],
        process=SimpleNamespace(snapshot=snapshot),
    )
    found = mostly_others(view, tensors)
    assert (found is not None) == told
    if found is not None:
        assert found.startswith("Of the 800.0 MiB that the process had in RAM, 20.0 MiB were tensors")
        assert "train.py:6 (`self.memory[key] = read(key)`) puts more and more into a container that nothing" in found
