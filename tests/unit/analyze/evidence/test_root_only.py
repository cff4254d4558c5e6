"""gather() and scatter() with a list that only one rank may pass: what to write instead, and what is left alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

MESSAGE = "Argument ``{}`` must NOT be specified on non-{} ranks."


def said(folder: Path, message: str, call: str) -> Explanation:
    file = folder / "train.py"
    file.write_text(f"def share(x, rank):\n    parts = [x, x]\n    {call}\nshare(1, 1)\n", encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [
        PythonFrame(function="gather", file="/x/site-packages/torch/distributed/distributed_c10d.py", line=1),
        PythonFrame(function="share", file=str(file), line=3),
        PythonFrame(function="<module>", file=str(file), line=4),
    ]
    return explained(snapshot, ExceptionReport(type="ValueError", message=message), frames)


def test_list_is_passed_on_one_rank_only(tmp_path: Path) -> None:
    """By the variable that the function calls rank, and the root of the call."""
    found = said(tmp_path, MESSAGE.format("gather_list", "destination"), "dist.gather(x, parts, dst=1)")
    assert found.words is not None
    assert "only rank 1 may: write `gather_list=parts if rank == 1 else None` and use what it holds" in found.words
    assert found.subject == "it passes `parts` (line 2: `parts = [x, x]`), and only rank 1 may"


def test_root_is_rank_0_where_none_is_given(tmp_path: Path) -> None:
    """Of scatter(), too."""
    found = said(tmp_path, MESSAGE.format("scatter_list", "source"), "dist.scatter(x, scatter_list=parts)")
    assert "write `scatter_list=parts if rank == 0 else None`." in (found.words or "")


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("Argument ``gather_list`` must be specified on destination rank.", "dist.gather(x, parts)"),
        (MESSAGE.format("gather_list", "destination"), "dist.gather(x, parts, group_dst=1)"),
        (MESSAGE.format("gather_list", "destination"), "collect(x, parts)"),
    ],
)
def test_other_calls_are_left_alone(message: str, call: str, tmp_path: Path) -> None:
    """Another message, a rank of a group, and a function of the program's own."""
    assert said(tmp_path, message, call).subject is None


def test_list_of_objects_is_passed_on_one_rank_only(tmp_path: Path) -> None:
    """gather_object() calls its argument otherwise than its message does."""
    found = said(tmp_path, MESSAGE.format("gather_list", "destination"), "dist.gather_object(x, parts, dst=0)")
    assert "write `object_gather_list=parts if rank == 0 else None`" in (found.words or "")
    assert "call all_gather_object()" in (found.words or "")
