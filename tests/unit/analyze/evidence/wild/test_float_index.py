"""Indices that are the bits of a float, by the number, the arrays of the line, and the source that reads them."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.wild import float_index as module
from pytracer.analyze.evidence.wild.far_index import FarIndex
from pytracer.analyze.evidence.wild.float_index import FloatIndex, float_index
from pytracer.decode.types.snapshot import HeldArray, PythonFrame
from pytracer.report.job import NativeFrame

SOURCE = """#include <stdint.h>
void walk(const int64_t *offsets, const int64_t *items, const int64_t *start, int64_t n, int64_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = start[i];
        int64_t low = offsets[at], high = offsets[at + 1];
        CHECK
        at = items[low + pick(high - low)];
        out[i] = at;
        at = offsets[at];
    }
}
"""
PROGRAM = """def run(lib, offsets, items, start, out, prices):
    lib.walk(offsets, items, start, 64, out)


run(1, 2, 3, 4, 5, 6)
"""
OFFSETS, ITEMS, START, COUNT = 0x5600_0000_1000, 0x5600_0001_0000, 0x5600_0008_0000, 5000
PRICE = struct.unpack("<q", struct.pack("<d", 1.25))[0]


def found(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: int = PRICE,
    *,
    source: bool = True,
    check: str = "",
    behind: str | None = "float64",
    length: bool = True,
    unfit: bool = False,
    outside: bool | None = None,
) -> FloatIndex | None:
    """Of a function of the program's that died with this index; `behind`: the type of what follows `items`.

    `outside`: whether a number of an array is known to lead out of the one that it is looked up in.
    """
    file, library, program = folder / "ops.c", folder / "libops.so", folder / "train.py"
    if source:
        file.write_text(SOURCE.replace("CHECK", check), encoding="utf-8")
        os.utime(file, (1000, 1000))
    library.write_bytes(b"")
    program.write_text(PROGRAM, encoding="utf-8")
    frame = PythonFrame("run", str(program), 2)
    held = [("offsets", OFFSETS, "int64", 100), ("items", ITEMS, "int64", COUNT), ("start", START, "int64", 64)]
    held += [("prices", ITEMS + 8 * COUNT, behind, COUNT)] if behind is not None else []
    crash = SimpleNamespace(
        arrays=tuple(HeldArray(name, data, dtype, (size,), (8,), frame, 0) for name, data, dtype, size in held),
        numbers=(), holders=(), arguments=(), python_stack=(frame,), python_threads=(), native_stack=(), memory=(),
        images=(SimpleNamespace(path=str(library), start=1, end=2),), complete=True,
        registers={"r10": OFFSETS, "rcx": value % (1 << 64), "rbx": ITEMS, **({"rax": COUNT} if length else {})},
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    monkeypatch.setattr(module, "far_index", lambda view: FarIndex("r10", "rcx", value, 8, stack=False))
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    monkeypatch.setattr(module, "unfit_memory", lambda view: object() if unfit else None)
    monkeypatch.setattr(module, "looked_up", lambda view: SimpleNamespace(wrong=outside))
    own = NativeFrame(function=None, image=str(library))
    view: Any = SimpleNamespace(
        native_stack=[own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), space=SimpleNamespace(live_around=lambda addr: None), fault=SimpleNamespace(access="read"),
    )  # fmt: skip
    explanation = float_index(view)
    if explanation is not None:
        texts.update(clause=explanation.clause(view), advice=explanation.advice(view))
    return explanation


texts: dict[str, str] = {}


def test_what_lies_behind_an_array_of_indices_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, monkeypatch) is not None
    assert texts["clause"] == (
        f": walk() used {PRICE} as an index into `offsets` [100] int64, which is the bits of the float64 1.25, read by "
        "`at = items[low + pick(high - low)]` (ops.c:8) behind the end of `items` [5000] int64, where `prices` [5000] "
        "float64 begins"
    )
    assert texts["advice"].startswith("No condition there asks whether low < high: of a row without elements, ops.c:8")


@pytest.mark.parametrize("check", ["if (low == high) continue;", "while (low < high) low++;"])
def test_a_function_that_asks_for_empty_rows_is_not_blamed_for_them(
    check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-alike: what is read there may still be behind the end, by another index."""
    assert found(tmp_path, monkeypatch, check=check) is not None
    assert "row" not in texts["advice"].replace("items", "") and "Check the index" in texts["advice"]


def test_without_the_source_the_array_is_known_by_what_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(tmp_path, monkeypatch, source=False) is not None
    assert "1.25, read behind the end of `items`" in texts["clause"]
    assert "compare each index with the length of `items`" in texts["advice"]


def test_what_follows_alone_makes_it_probable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, monkeypatch, source=False, length=False) is not None
    assert "probably read behind the end" in texts["clause"]


@pytest.mark.parametrize("value", [-1, 7 * 10**12, 1 << 61, struct.unpack("<q", struct.pack("<d", 1e300))[0]])
def test_another_number_is_no_float(value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-alikes: an index that was computed wrong, an id, a hash."""
    assert found(tmp_path, monkeypatch, value) is None


def test_a_float_like_number_alone_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-alike: no array ends before floats, and no source reads an index."""
    assert found(tmp_path, monkeypatch, source=False, behind=None, length=False) is None


def test_an_array_of_another_type_is_explained_by_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, monkeypatch, unfit=True) is None


@pytest.mark.parametrize("behind", [None, "float64"])
def test_number_that_leads_out_of_the_array_it_is_looked_up_in_comes_before_what_lies_there(
    behind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(tmp_path, monkeypatch, behind=behind, outside=True) is None
    assert found(tmp_path, monkeypatch, behind=behind, outside=False) is not None


def test_number_that_the_array_may_have_itself_is_asked_for_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No floats follow the array: np.empty() that was not filled has old floats in it."""
    assert found(tmp_path, monkeypatch, behind=None) is not None
    assert texts["advice"].startswith(f"First see whether `items` has {PRICE} itself: memory of np.empty()")
