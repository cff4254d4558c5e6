"""A folder that two ranks make after both have asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program

SOURCE = """\
import os, tempfile
class Disk:
    exists = staticmethod(lambda path: False)
def writer(folder, describe):
    fresh = not Disk.exists(folder)
    header = {between}
    if fresh:
        os.makedirs(folder)
writer(tempfile.mkdtemp(), list)
"""


def of_rank(folder: Path, between: str, world: str = "2") -> str:
    def judge(snapshot: Any, *rest: Any) -> Any:
        snapshot.environment = {"RANK": "1", "WORLD_SIZE": world}
        return explained(snapshot, *rest)

    return of_program(folder, SOURCE.format(between=between), judge) or ""


def test_other_rank_is_named_with_the_line_that_asked(tmp_path: Path) -> None:
    said = of_rank(tmp_path, "0")
    assert said.startswith("`folder` was not there at line 5 (`not Disk.exists(folder)`), and was at line 8: another ")
    assert "another rank made it in between. Write `os.makedirs(folder, exist_ok=True)`" in said


def test_what_was_called_between_is_told_as_the_other_way(tmp_path: Path) -> None:
    """That function may make it, too."""
    assert "another rank made it in between, if line 6 (`describe()`) did not." in of_rank(tmp_path, "describe()")


@pytest.mark.parametrize(("between", "world"), [("str.join(folder, 'a')", "2"), ("describe()", "1")])
def test_call_that_may_well_have_made_it_leaves_the_cause_open(between: str, world: str, tmp_path: Path) -> None:
    """The look-alikes: it is given the path, or there is no other rank."""
    assert "made it in between" not in of_rank(tmp_path, between, world)
