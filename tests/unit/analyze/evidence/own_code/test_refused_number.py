"""A number that C++ refused by an exception or an assertion, in the array that the line passed."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import refused_number as module
from tests.support.native_views import DATA, native_view

SOURCE = """\
#include <stdexcept>
static long piece(long index, long size)
{
    if (TEST) {
        fputs("CHECK failed", stderr);
        throw Fatal("CHECK failed: (index) >= (0)");
    }
    return index < size ? index : 0;
}
extern "C" long decode_ids(const int *ids, int n)
{
    long total = 0;
    for (int i = 0; i < n; i++)
        total += piece(GIVEN, n);
    return total;
}
"""
PROGRAM = """\
import ctypes
import numpy as np
lib = ctypes.CDLL("libops.so")
class Pad:
    def __init__(self, pad=-100):
        self.pad = pad
    def __call__(self, rows):
        labels = np.full((len(rows), 6), self.pad)
        return labels
pad = Pad()
def run(rows):
    ids = np.ascontiguousarray(rows, dtype=np.int32)
    lib.decode_ids(ids.ctypes.data, len(ids))
def main(rows):
    for row in pad(rows):
        run(row)
"""
IDS = (5, 7, -100, -100)


def found(folder: Path, *, test: str = "!(index >= 0)", given: str = "ids[i]", ids: tuple[int, ...] | None = IDS,
          monkeypatch: pytest.MonkeyPatch, thrown: bool = True, running: str = "throw Fatal") -> Any:  # fmt: skip
    source = SOURCE.replace("TEST", test).replace("GIVEN", given)
    exception = SimpleNamespace(type="Fatal", what="CHECK failed") if thrown else None
    monkeypatch.setattr(module, "cpp_exception", lambda view: exception)
    memory = [("r15", DATA, struct.pack(f"<{len(ids)}i", *ids))] if ids is not None else []
    view = native_view(
        folder, PROGRAM, source, at="lib.decode_ids", way=[("piece", running), ("decode_ids", "total += piece")],
        outer="run(row)", arrays=[("ids", DATA, "int32", (len(IDS),))], memory=memory, suffix="cpp",
    )  # fmt: skip
    return module.refused_number(view)


def test_number_is_named_with_its_array_and_the_line_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the test before the throw, and by the memory of the array."""
    told = found(tmp_path, monkeypatch=monkeypatch)
    assert told.summary == "`index` is -100, element 2 of `ids` [4] int32, which line 13 passes"
    assert told.advice.startswith(
        "Leave -100 out of `ids` [4] int32, or replace it, before line 13 passes that: ops.cpp:4"
    )
    assert "Line 8 (`labels = np.full((len(rows), 6), self.pad)`) writes -100" in told.advice
    assert "ctypes cannot hand exceptions on" in told.advice


@pytest.mark.parametrize("test", ["index < 0", "(index < 0) || index > size", "index <= -1"])
def test_other_forms_of_the_test(test: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, test=test, monkeypatch=monkeypatch).value == -100


@pytest.mark.parametrize(
    "how",
    [
        {"test": "index >= size"},
        {"test": "index < -200"},
        {"ids": (5, 7, 1, 0)},
        {"ids": None},
        {"given": "n - i"},
        {"test": "index < 0 && size > 9"},
    ],
    ids=["unknown limit", "not refused", "none in the array", "memory not kept", "no element", "not alone"],
)
def test_number_that_may_not_be_the_reason_is_not_told(
    how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(tmp_path, monkeypatch=monkeypatch, **how) is None


@pytest.mark.parametrize(
    ("before", "behind", "is_told"),
    [
        ("if (ids[i] == -100) continue;", "", False),
        ("", "if (ids[i] == 2) break;", False),
        ("", "if (ids[i] < 4) continue;", True),
        ("", "if (total > 4) break;", True),
    ],
    ids=["skips it", "ends before it", "skips the rest of its round", "asks for another thing"],
)
def test_number_that_the_caller_may_leave_out_is_not_told(
    before: str, behind: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a condition on the numbers may keep from the call."""
    call = "    {{ {before}\n        total += piece(GIVEN, n);\n        {behind} }}\n"
    asks = SOURCE.replace("        total += piece(GIVEN, n);\n", call.format(before=before, behind=behind))
    monkeypatch.setitem(globals(), "SOURCE", asks)
    assert (found(tmp_path, monkeypatch=monkeypatch) is not None) is is_told


def test_throw_for_another_reason_is_not_explained_by_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source_line = "return index < size"
    assert found(tmp_path, monkeypatch=monkeypatch, running=source_line) is None
