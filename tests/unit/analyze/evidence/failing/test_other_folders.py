"""Relative paths that lead to a file from another folder: the line that changed the current one."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

PROGRAM = """import os
def enter(folder):
    {moves}
def main():
    enter("runs/1")
    open("data/train.pt")
main()
"""


def said(folder: Path, moves: str, elsewhere: dict[str, str]) -> Explanation:
    """Of data/train.pt, which is not below the current folder."""
    program = folder / "train.py"
    program.write_text(PROGRAM.format(moves=moves), encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    values = {"file": "data/train.pt", "file missing part": "data", "file folder": ".", "file folder entries": "0"}
    error = ExceptionReport(
        type="FileNotFoundError",
        message="[Errno 2] No such file or directory: 'data/train.pt'",
        variables=[VariableReport(name=name, value=value) for name, value in (values | elsewhere).items()],
    )
    way = [("main", 6), ("<module>", 7)]
    return explained(snapshot, error, [PythonFrame(function=name, file=str(program), line=line) for name, line in way])


FOUND = {"file in folder": "/home/a", "file current folder": "/home/a/runs/1"}
LEFT = {**FOUND, "file folder left": "/home/a"}


def test_line_that_changes_the_folder_is_named(tmp_path: Path) -> None:
    """And the folder that has the file."""
    found = said(tmp_path, "os.chdir(folder)", LEFT)
    assert found.subject == (
        "line 3 changes the current folder, and the path is relative to /home/a, where the file is"
    )
    assert "absolute before that line" in (found.words or "")


def test_job_that_was_started_elsewhere(tmp_path: Path) -> None:
    """No line changes the folder, or the process is still in the one of its start."""
    assert "line 3" not in (said(tmp_path, "os.chdir(folder)", FOUND).subject or "")
    found = said(tmp_path, "pass", LEFT)
    assert found.subject == "the path is relative: /home/a has it, and the current folder is /home/a/runs/1"
    assert "Start the job in that folder" in (found.words or "")


def test_file_that_is_nowhere_is_not_laid_to_the_folder(tmp_path: Path) -> None:
    """Its name may be wrong as well."""
    found = said(tmp_path, "os.chdir(folder)", {})
    assert "relative" not in (found.subject or "")
    assert "The current folder is empty: line 3 (`os.chdir(folder)`) changes it" in (found.words or "")
