"""Folders that the program itself removes, with the file that is read later in them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

KEEPER = """import os, shutil, torch
class Keeper:
    def save(self, model, step):
        path = os.path.join(self.folder, f"{name}-{{step}}")
        torch.save(model, os.path.join(path, "model.pt"))
        self.kept.append(path)
        if len(self.kept) > 2:
            {remove}
    def load(self):
        return {load}
Keeper().load()
"""
REMOVES, LOADS = "shutil.rmtree(self.kept.pop(0))", 'torch.load(os.path.join(self.best, "model.pt"))'


def said(folder: Path, name: str = "checkpoint", remove: str = REMOVES, load: str = LOADS) -> Explanation:
    """Of /x/run/checkpoint-10, which is not there."""
    file = folder / "train.py"
    file.write_text(KEEPER.format(name=name, remove=remove, load=load), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",))
    path = "/x/run/checkpoint-10/model.pt"
    values = {"file": path, "file kind": "absent", "file missing part": "checkpoint-10", "file folder": "/x/run"}
    error = ExceptionReport(
        type="FileNotFoundError",
        message=f"[Errno 2] No such file or directory: '{path}'",
        variables=[VariableReport(name=key, value=value) for key, value in values.items()],
    )
    frames = [
        PythonFrame(function="open", file="/x/site-packages/torch/serialization.py", line=1),
        PythonFrame(function="Keeper.load", file=str(file), line=10),
        PythonFrame(function="<module>", file=str(file), line=11),
    ]
    return explained(snapshot, error, frames)


def test_rotation_of_checkpoints_that_took_the_best_one_is_named(tmp_path: Path) -> None:
    """Found by a twin: the line that removed the folder was the last of four guesses, without its number."""
    found = said(tmp_path)
    removes = "line 8 (`shutil.rmtree(self.kept.pop(0))`) removes folders of such names"
    assert found.subject == f"there is no folder 'checkpoint-10'; {removes}"
    assert "to see whether this one was removed or never made" in (found.words or "")
    assert "leave out there what line 10 still reads, such as the best checkpoint" in (found.words or "")


@pytest.mark.parametrize(
    "parts",
    [
        {"name": "events"},
        {"remove": "shutil.rmtree(self.cache)"},
        {"remove": f"{REMOVES}; shutil.rmtree(self.cache)"},
        {"load": "torch.save(1, os.path.join(self.best, 'model.pt'))"},
    ],
    ids=["another name", "another folder", "two calls", "written"],
)
def test_other_folders_are_not_said_to_be_removed_there(parts: dict[str, str], tmp_path: Path) -> None:
    assert "removes folders of such" not in (said(tmp_path, **parts).words or "")
