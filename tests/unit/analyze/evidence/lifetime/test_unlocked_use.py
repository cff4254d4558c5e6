"""Memory that one thread frees below a lock which another one, that uses it, does not take."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import unlocked_use as module
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.decode.types.storages import CallSite

MEMORY = """class Memory:
    def __init__(self):
        self.obs = torch.zeros(9, 8)
        self.lock = threading.Lock()
    def _grow(self, rows):
        self.obs.resize_(rows, 8)
    def extend(self, obs):
        with self.lock:
            self._grow(9)
            self.obs[:4] = obs
    def mean(self):
        filled = self.obs[:4]
        return filled.mean(0)
    def sample(self, index):
        return self.obs[index]
    def safe(self, index):
        with self.lock:
            return self.obs[index]
    def rows(self):
        return self.obs.shape[0]
class Monitor:
    def spread(self, memory):
        return memory.obs.std()
"""


def view_of(folder: Path, source: str, freed: int, *running: tuple[str, int]) -> Any:
    """A process that failed at the first of these lines, in memory that another line freed."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    frames = tuple(PythonFrame(name, str(file), line) for name, line in running)
    storage = SimpleNamespace(freed_by=CallSite(python=PythonFrame("Memory._grow", str(file), freed)))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    return SimpleNamespace(
        crash=SimpleNamespace(python_stack=frames),
        place=SimpleNamespace(storage=storage),
        process=SimpleNamespace(snapshot=snapshot),
        python_frame=frames[0],
    )


def test_reader_that_takes_no_lock(tmp_path: Path) -> None:
    """Its function is called inside of the `with`; another reader of the class takes none, either."""
    found = module.unlocked_use(view_of(tmp_path, MEMORY, 6, ("Memory.mean", 13), ("<module>", 23)))
    assert found is not None
    assert found.summary == (
        "that is done below `self.lock` (line 8 in Memory.extend), which Memory.mean() does not take"
    )
    assert found.others == (("Memory.sample", "line 15"),)
    assert found.advice.startswith(
        "Take `self.lock` in Memory.mean() around line 13 and all that uses `self.obs` there"
    )
    assert "So does Memory.sample() (line 15): take it there, too." in found.advice


def test_reader_of_another_class(tmp_path: Path) -> None:
    found = module.unlocked_use(view_of(tmp_path, MEMORY, 6, ("Monitor.spread", 23)))
    assert found is not None and found.advice.startswith("Take `lock` of Memory in Monitor.spread()")


def test_data_that_is_replaced(tmp_path: Path) -> None:
    source = MEMORY.replace("self.obs.resize_(rows, 8)", "self.obs.data = torch.zeros(rows, 8)")
    assert module.unlocked_use(view_of(tmp_path, source, 6, ("Memory.mean", 13))) is not None


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("", "", 18),
        ("with self.lock:\n            self._grow", "if True:\n            self._grow", 13),
        ("threading.Lock()", "open_log()", 13),
        ("    def rows(self):\n", "    def rows(self):\n        self._grow(3)\n", 13),
        ("        filled = self", "        self.lock.acquire()\n        filled = self", 14),
    ],
    ids=["inside", "no lock", "another object", "also called without", "acquired"],
)
def test_what_is_no_missing_lock(old: str, new: str, line: int, tmp_path: Path) -> None:
    source = MEMORY.replace(old, new) if old else MEMORY
    assert not old or source != MEMORY
    assert module.unlocked_use(view_of(tmp_path, source, 6, ("Memory.mean", line))) is None
