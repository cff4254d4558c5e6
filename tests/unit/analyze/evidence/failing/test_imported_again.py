"""A child of spawn that starts processes while it imports: which line of which file does that."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

MESSAGE = """
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.
"""
HELPER = """def mean(data):
    for batch in loader(data):
        pass
MEAN = mean(range(3))
"""
PLAIN = """from helper import mean
print("epoch")
MEAN = mean(range(3))
"""
GUARDED = f"{PLAIN}if __name__ == '__main__':\n    print(MEAN)\n"


def said(folder: Path, source: str, way: list[tuple[str, str, int]], message: str = MESSAGE) -> Explanation:
    """Of the child's exception; frames are innermost first."""
    for name, text in (("train.py", source), ("helper.py", HELPER)):
        (folder / name).write_text(text, encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    stack = [PythonFrame(function=function, file=str(folder / name), line=line) for name, function, line in way]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message), stack)


@pytest.mark.parametrize("source", [PLAIN, GUARDED], ids=["no guard", "a guard"])
def test_line_of_the_script_that_no_guard_has(source: str, tmp_path: Path) -> None:
    """Where there is a guard, the line is outside of it."""
    found = said(tmp_path, source, [("helper.py", "mean", 2), ("train.py", "<module>", 3)])
    assert "ran the main script again, which starts processes on import" in (found.subject or "")
    assert "rain.py:3 (`MEAN = mean(range(3))`)" in (found.words or "")
    outside = 'is outside of `if __name__ == "__main__":` (train.py:4)'
    assert (outside in (found.words or "")) is (source == GUARDED)
    assert 'below `if __name__ == "__main__":`' in (found.words or "") or source == GUARDED


def test_module_that_starts_processes_on_import(tmp_path: Path) -> None:
    """A guard of the script does not help there."""
    way = [("helper.py", "mean", 2), ("helper.py", "<module>", 4), ("train.py", "<module>", 1)]
    found = said(tmp_path, GUARDED, way)
    assert "which imports helper.py, and that starts processes on import" in (found.subject or "")
    assert "Line 4 (`MEAN = mean(range(3))`) runs whenever that file is imported (train.py:1)" in (found.words or "")


def test_other_errors_of_an_import(tmp_path: Path) -> None:
    """Nothing is said of them."""
    found = said(tmp_path, PLAIN, [("helper.py", "mean", 2), ("train.py", "<module>", 3)], "no data")
    assert "main script" not in (found.words or "")
