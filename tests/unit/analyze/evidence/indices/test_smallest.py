"""An index that is the smallest integer, by what the source says of where it became that."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import smallest
from pytracer.report.job import PythonFrame

CONVERTED = """\
def quantize(x, levels):
    low, high = x.min(), x.max()
    return ((x - low) / (high - low) * levels).int()

def look(table, x):
    ids = quantize(x, 8)
    lib.pick(table.data_ptr(), ids.data_ptr())

look(torch.zeros(8), torch.ones(4))
"""
MARKED = CONVERTED.replace("    lib.pick", "    ids[::7] = -(1 << 31)\n    lib.pick")
WHOLE = "def look(table, x):\n    ids = torch.argmax(x).int()\n    lib.pick(table.data_ptr(), ids.data_ptr())\n"
NUMBER = -(1 << 31)


def found(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str, line: int, name: str, number: int) -> Any:
    """Of the index tensor `name` of the line, whose smallest value is `number`."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    stack = [PythonFrame(function="look", file=str(file), line=line)]
    stack += [PythonFrame(function="<module>", file=str(file), line=len(source.splitlines()))] * ("\nlook(" in source)
    item = SimpleNamespace(name=name, item=SimpleNamespace(is_integer=True, minimum=number))
    monkeypatch.setattr(smallest, "reached_row", lambda view: None)
    monkeypatch.setattr(smallest, "looked_up", lambda view: None)
    monkeypatch.setattr(smallest, "line_tensors", lambda view: (item,))
    monkeypatch.setattr(smallest, "line_arrays", lambda view: [])
    monkeypatch.setattr(smallest, "program_frames", lambda view: stack)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=snapshot))
    return smallest.smallest_index(view)


def test_the_conversion_and_what_can_be_zero_there_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = found(monkeypatch, tmp_path, CONVERTED, 7, "ids", NUMBER)
    assert told.summary == (
        "-2147483648 is what line 3 (`((x - low) / (high - low) * levels).int()`) makes of NaN or inf; line 3 divides "
        "by `high - low`, which may be 0"
    )
    assert told.advice.endswith("which may be 0: divide by `(high - low + 1e-8)`.")
    assert 3 in [line for _, line in told.behind.lines]


def test_a_number_that_the_program_writes_down_is_no_conversion(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = found(monkeypatch, tmp_path, MARKED, 8, "ids", NUMBER)
    assert told.summary == "-2147483648 is what line 7 writes down (`-(1 << 31)`)"
    assert "NaN" not in told.advice


@pytest.mark.parametrize(
    ("source", "line", "name", "number"),
    [
        (CONVERTED, 7, "ids", -1),
        (WHOLE, 3, "ids", NUMBER),
        (CONVERTED, 7, "parameter up.weight of Net", NUMBER),
    ],
    ids=["another number", "whole numbers are converted", "of a module"],
)
def test_nothing_is_told_where_the_source_does_not_show_it(
    source: str, line: int, name: str, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert found(monkeypatch, tmp_path, source, line, name, number) is None
