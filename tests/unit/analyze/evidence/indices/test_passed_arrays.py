"""Arrays of NumPy with NaN, of which the program's own C made its index, by the numbers that were read of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from pytracer.analyze.evidence.indices import passed_floats as module
from pytracer.analyze.evidence.indices.coordinates import SMALLEST
from tests.support.native_views import DATA, OTHER, native_view

SOURCE = """\
void mark(const float *points, int n, int *cells)
{
    for (int i = 0; i < n; i++)
        cells[(int)points[i]] = 1;
}
"""
PROGRAM = """\
import ctypes
import numpy as np
lib = ctypes.CDLL("libops.so")
def run(points, cells):
    lib.mark(points.ctypes.data, len(points), cells.ctypes.data)
def main(sweeps):
    run(sweeps[0], np.zeros(10_000, np.int32))
"""
ARRAYS = [("points", OTHER, "float32", (4000,)), ("cells", DATA, "int32", (10_000,))]


def told(folder: Path, monkeypatch: pytest.MonkeyPatch, **values: dict[str, int | None]) -> Any:
    view = native_view(
        folder, PROGRAM, SOURCE, at="lib.mark", way=[("mark", "cells[(int)")], outer="run(sweeps", arrays=ARRAYS,
        addr=DATA + 4 * SMALLEST,
    )  # fmt: skip
    view.place.storage, view.instruction = None, None
    arrays = [structs.replace(item, **values.get(item.expression, {})) for item in view.crash.arrays]
    view.crash.arrays = tuple(arrays)
    monkeypatch.setattr(module, "far_index", lambda view: SimpleNamespace(value=SMALLEST))
    monkeypatch.setattr(module, "own_function", lambda view: SimpleNamespace(own=True))
    monkeypatch.setattr(module, "line_tensors", lambda view: [])
    return module.passed_floats(view)


CELLS: dict[str, int | None] = {"minimum": 0, "maximum": 0}


def test_array_with_nan_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(tmp_path, monkeypatch, points={"nan_count": 90, "has_infinity": 0}, cells=CELLS)
    assert found.summary == "`points` has NaN in 90 of 4000 numbers"
    assert "`assert np.isfinite(points).all()` before line 5 stops there" in found.advice


def test_finite_array_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(tmp_path, monkeypatch, points={"nan_count": 0, "has_infinity": 0}, cells=CELLS) is None


def test_integers_that_may_have_the_number_leave_it_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where theirs were not read, or are that number: it was made before the C had it."""
    points: dict[str, int | None] = {"nan_count": 90, "has_infinity": 0}
    assert told(tmp_path, monkeypatch, points=points) is None
    assert told(tmp_path, monkeypatch, points=points, cells={"minimum": SMALLEST, "maximum": 9}) is None


def test_array_that_was_not_read_is_to_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(tmp_path, monkeypatch, cells=CELLS)
    assert found.summary is None and "Check `points` with isfinite()" in found.advice
