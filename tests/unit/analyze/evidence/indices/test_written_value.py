"""The line that writes a value which is no index: a constant of the program that is the very number."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import written_value as module
from pytracer.analyze.evidence.indices.written_value import constant, written_value
from pytracer.report.job import PythonFrame

FAR = "def query(index, far):\n    index[far] = 1 << 30\n    return index\n"
PAD = "PAD = -1\ndef pad(ids):\n    return ids.masked_fill(ids < 3, PAD)\n"


def written(source: str, value: int, monkeypatch: pytest.MonkeyPatch) -> str | None:
    own = PythonFrame(function="train", file="/tmp/train.py", line=9)
    lines = source.splitlines()
    monkeypatch.setattr(module, "program_frames", lambda _: [own])
    monkeypatch.setattr(module, "program_files", lambda *_: {"/tmp/train.py": ast.parse(source)})
    monkeypatch.setattr(module, "place_of", lambda _, __, line: f"line {line}")
    monkeypatch.setattr(module, "line_text", lambda _, frame: lines[(frame.line or 0) - 1].strip())
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=SimpleNamespace(argv=())))
    return written_value(view, value)


@pytest.mark.parametrize(
    ("source", "value", "told"),
    [
        (FAR, 1 << 30, "Line 2 (`index[far] = 1 << 30`) writes 1073741824"),
        (PAD, -1, "Line 3 (`return ids.masked_fill(ids < 3, PAD)`) writes -1"),
        ("a = pad_sequence(x, padding_value=-100)\n", -100, "Line 1"),
        ("x[0] = torch.iinfo(torch.int32).max\n", (1 << 31) - 1, "Line 1"),
    ],
)
def test_the_only_line_that_writes_the_number_is_told(
    source: str, value: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = written(source, value, monkeypatch)
    assert found is not None and told in found


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (FAR, 1 << 29),
        (FAR + "index[0] = 1073741824\n", 1 << 30),  # two lines may have
        ("x[0] = 1\n", 1),  # as any line may
        ("y = 1 << 30\n", 1 << 30),  # in no tensor
        ("PAD = -1\nPAD = -2\nx[0] = PAD\n", -1),
        ("x[0] = True\n", 1),
    ],
)
def test_any_other_number_has_no_line(source: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(source, value, monkeypatch) is None


@pytest.mark.parametrize("text", ["1 << 4000000", "2 ** 10 ** 9", "7 // 0", "1.5", "f(2)", "a"])
def test_numbers_that_are_none_or_too_large_are_not_computed(text: str) -> None:
    assert constant(ast.parse(text, mode="eval").body, ast.parse("")) is None
