"""gather(), all_gather() and scatter() that refuse the sizes of their tensors: what all ranks have to do."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MESSAGE = "ProcessGroupGloo::{}: invalid tensor size at index {} (expected ({}), got ({}))"
EACH = {"items of parts": "[62, 1]; [84, 1] at 1", "values": "[62, 1] float32", "parts": "list of 2"}
FULL = {"values": "[3, 2] float32", "parts": "list of 2", "parts[0]": "[8, 2] float32"}


def said(folder: Path, message: str, call: str, held: dict[str, str]) -> Explanation:
    file = folder / "train.py"
    lines = f"    parts = [values.new_zeros(n, 1) for n in sizes]\n    {call}\n"
    file.write_text(f"def collect(values, sizes):\n{lines}collect(1, 1)\n", encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [
        PythonFrame(function="gather", file="/x/site-packages/torch/distributed/distributed_c10d.py", line=1),
        PythonFrame(function="collect", file=str(file), line=3),
        PythonFrame(function="<module>", file=str(file), line=4),
    ]
    variables = [VariableReport(name=name, value=value) for name, value in held.items()]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message, variables=variables), frames)


@pytest.mark.parametrize(
    ("op", "call", "objects"),
    [
        ("gather", "dist.gather(values, parts, dst=0)", "gather_object()"),
        ("gather", "torch.distributed.gather(tensor=values, gather_list=parts)", "gather_object()"),
        ("allgather", "dist.all_gather(parts, values)", "all_gather_object()"),
        ("allgather", "all_gather(tensor=values, tensor_list=parts)", "all_gather_object()"),
    ],
)
def test_list_with_the_size_of_each_rank(op: str, call: str, objects: str, tmp_path: Path) -> None:
    """It is not made for another batch: the ranks have tensors of several sizes."""
    found = said(tmp_path, MESSAGE.format(op, 1, "62, 1", "84, 1"), call, EACH)
    words = found.words or ""
    assert "takes tensors of one size only, and `parts` (line 2: `parts = [values.new_zeros(n, 1) for n in" in words
    assert " to the largest size of all ranks before line 3" in words
    assert f"or use {objects}" in words
    assert "full batch" not in words
    name = "gather()" if op == "gather" else "all_gather()"
    assert (
        found.subject
        == f"{name} takes tensors of one size only, and `parts` has [62, 1] and [84, 1], one for each rank"
    )


@pytest.mark.parametrize(("index", "known"), [(1, True), (0, False)])
def test_entries_that_are_not_recorded(index: int, known: bool, tmp_path: Path) -> None:
    """The first one had the right size, if another one is refused."""
    found = said(tmp_path, MESSAGE.format("allgather", index, "84", "62"), "dist.all_gather(parts, values)", {})
    assert ("has [84] and [62], one for each rank" in (found.words or "")) is known


def test_list_of_another_size_than_the_tensor(tmp_path: Path) -> None:
    """The look-alike: all entries are alike, made for a full batch."""
    found = said(tmp_path, MESSAGE.format("allgather", 0, "3, 2", "8, 2"), "dist.all_gather(parts, values)", FULL)
    assert "has [8, 2] where that is [3, 2]: make its entries by torch.empty_like(values)" in (found.words or "")
    assert "one for each rank" not in (found.words or "")


def test_parts_of_a_scatter(tmp_path: Path) -> None:
    """The rank that sends them refuses its own list."""
    found = said(tmp_path, MESSAGE.format("scatter", 1, "62, 1", "84, 1"), "dist.scatter(values, parts)", EACH)
    assert "pad the parts to the largest before line 3, make `values` (line 4" in (found.words or "")
    other = said(tmp_path, MESSAGE.format("scatter", 0, "3, 2", "8, 2"), "dist.scatter(values, parts)", FULL)
    assert "has [8, 2]: make it of their size on every rank" in (other.words or "")


@pytest.mark.parametrize("call", ["self.group.exchange(values)", "dist.all_gather(*given)"])
def test_operands_that_the_line_does_not_show(call: str, tmp_path: Path) -> None:
    """What is said holds without them."""
    found = said(tmp_path, MESSAGE.format("allgather", 1, "62, 1", "84, 1"), call, {})
    assert "all_gather() takes tensors of one size only, and the list has [62, 1] and [84, 1]" in (found.words or "")
