"""Records of a file that say their length themselves, and do not fill the shape that the program gives them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

SOURCE = """\
import struct
import numpy as np, torch
ROWS = 16
def records(file):
    {head}
    block = {read}
    return {shaped}
records(open("scans.bin", "rb"))
"""
COUNT = '(count,) = struct.unpack("<I", file.read(4))'
READ = "np.frombuffer(file.read(count), np.float32)"


def said(
    folder: Path, message: str, *, head: str = COUNT, read: str = READ, shaped: str = "block.reshape(ROWS, 8)"
) -> Explanation:
    program = folder / "train.py"
    program.write_text(SOURCE.format(head=head, read=read, shaped=shaped), encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    stack = [PythonFrame("records", str(program), 7), PythonFrame("<module>", str(program), 8)]
    return explained(snapshot, ExceptionReport(type="ValueError", message=message), stack)


SHORT = "cannot reshape array of size 120 into shape (16,8)"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, SHORT),
        ({"head": "count = int.from_bytes(file.read(4), 'little')"}, SHORT),
        ({"read": "np.fromfile(file, np.float32, count=count)"}, SHORT),
        (
            {"read": "torch.frombuffer(file.read(count), dtype=torch.float32)", "shaped": "block.view(ROWS, 8)"},
            "shape '[16, 8]' is invalid for input of size 120",
        ),
    ],
)
def test_record_that_lacks_rows_is_told_with_the_line_of_its_length(
    changed: dict[str, str], message: str, tmp_path: Path
) -> None:
    """By the length that the file itself has, in several ways to read it."""
    found = said(tmp_path, message, **changed)
    assert found.subject == "`block` is a record of the file with 15 rows of (8), and not 16 (`ROWS`)"
    assert found.words is not None
    assert "as long as the file says (`count`, line 5), and line 7 asks for 16 (`ROWS`)" in found.words
    assert "leave out a record whose size is not `ROWS * 8`, or pad it. If all have 15, change" in found.words


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "cannot reshape array of size 121 into shape (16,8)"),
        ({"head": "count = 480"}, SHORT),
        ({"read": "np.frombuffer(file.read(), np.float32)"}, SHORT),
        ({"read": "np.frombuffer(file.read(512), np.float32)"}, SHORT),
        ({"shaped": "block.reshape(-1, 8)"}, "cannot reshape array of size 121 into shape (8)"),
    ],
    ids=["no whole rows", "set by the program", "whole file", "fixed", "open"],
)
def test_length_that_the_program_sets_is_no_record(changed: dict[str, str], message: str, tmp_path: Path) -> None:
    """The look-alikes: a cut-off file, another type, a wrong number in the program."""
    assert "is a record of" not in (said(tmp_path, message, **changed).words or "")
