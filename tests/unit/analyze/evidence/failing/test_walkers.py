"""RecursionError in a library: what it walks through is told by its functions, the line by the program's source."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.usage.walkers import too_deep
from pytracer.report.job import ExceptionReport, PythonFrame

TORCH = "/usr/lib/python3/site-packages/torch"
SUBSET = """from torch.utils.data import Subset
def without(data, worst):
    return Subset(data, worst)
def train(data):
    for step in range(2000):
        data = without(data, 0)
    print(data[0])
train([])
"""


def told(folder: Path, source: str, above: list[tuple[str, str]], message: str = "maximum depth") -> str | None:
    """What is said where a library's functions are above a line of the program."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), storages=())
    stack = [PythonFrame(function=function, file=path, line=3) for path, function in above]
    stack.append(PythonFrame(function="<module>", file=str(file), line=1))
    return too_deep(snapshot, ExceptionReport(type="RecursionError", message=message), stack)


@pytest.mark.parametrize("looped", [True, False])
def test_objects_of_a_library_in_each_other(looped: bool, tmp_path: Path) -> None:
    """Where no line wraps the last one, nothing is said."""
    source = SUBSET if looped else SUBSET.replace("data = without", "last = without")
    said = told(tmp_path, source, [(f"{TORCH}/utils/data/dataset.py", "Subset.__getitem__")] * 40)
    if not looped:
        assert said is None
    else:
        assert said is not None
        assert said.startswith("Subset is nested in itself, and line 6 adds a level in each round of its loop.")


def test_function_of_a_library_that_is_there_once(tmp_path: Path) -> None:
    """The limit struck there by chance."""
    assert told(tmp_path, SUBSET, [(f"{TORCH}/utils/data/dataset.py", "Subset.__getitem__")]) is None
    assert told(tmp_path, SUBSET, [("/usr/lib/python3.11/copy.py", "deepcopy")]) is None


def test_walker_without_a_line(tmp_path: Path) -> None:
    """What pickle walks through is a known crash, where no line is found."""
    deep = [("/usr/lib/python3.11/copy.py", "deepcopy"), ("/usr/lib/python3.11/copy.py", "_reconstruct")] * 20
    said = told(tmp_path, "copy.deepcopy(x)\n", deep)
    assert said is not None
    assert said.startswith(
        "copy.deepcopy() calls itself for each object that an object holds, deeper than the recursion"
    )
    assert told(tmp_path, "pickle.dumps(x)\n", [], "maximum recursion depth exceeded while pickling an object") is None


CHAIN = """class Step:
    def __init__(self):
        self.next = None
class Replay:
    def add(self, ends):
        step = Step()
        self.last.next = step
        self.last = None if ends else step
        self.steps.append(step)
"""


@pytest.mark.parametrize("listed", [True, False])
def test_objects_that_a_list_has_are_unlinked(listed: bool, tmp_path: Path) -> None:
    source = CHAIN if listed else CHAIN.replace("self.steps.append(step)", "self.count += 1")
    found = told(tmp_path, source, [], "maximum recursion depth exceeded while pickling an object") or ""
    assert "line 7 may add one each time that add() runs: `self.last.next = step`, each held by `Step.next`. " in found
    assert ("Line 9 (`self.steps.append(step)`) keeps them in a list already: leave `next` out" in found) == listed
    assert ("Keep the objects in a flat list" in found) != listed
