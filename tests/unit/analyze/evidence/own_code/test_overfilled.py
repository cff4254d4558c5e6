"""A buffer that the running C fills by a counter, with room for fewer elements than it goes through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.overfilled import overfilled
from tests.support.native_views import DATA, OTHER, native_view

SOURCE = """\
typedef struct cell { unsigned long key; int idx, weight; struct cell *next; } cell_t;
long subsample(const float *xyz, long n, cell_t **table, cell_t *cells, long size, long *out)
{
    long count = 0;
    for (long i = 0; i < n; i++) {
        unsigned long key = (unsigned long)xyz[i * 3];
        cell_t **slot = &table[key % size];
        while (*slot && (*slot)->key != key)
            slot = &(*slot)->next;
        if (*slot == 0 MORE) {
            cell_t *c = cells + count++;
            c->key = key;
            *slot = c;
        }
    }
    for (long i = 0; i < count; i++)
        out[i] = cells[i].idx;
    return count;
}
"""
PROGRAM = """\
import ctypes
import numpy as np
lib = ctypes.CDLL("libops.so")
def run(xyz, ratio):
    n = len(xyz)
    size = max(int(n * ratio), 1)
    cells = np.empty(size * 24, np.uint8)
    table = np.empty(size, np.int64)
    out = np.empty(n, np.int64)
    lib.subsample(xyz.ctypes.data, n, table.ctypes.data, cells.ctypes.data, size, out.ctypes.data)
def main(tiles):
    for xyz in tiles:
        run(xyz, 2.5 / 14)
"""
N, SIZE = 1000, 178


def found(folder: Path, source: str = SOURCE, *, room: int = SIZE, more: str = "", **how: Any) -> Any:
    arrays = [
        ("xyz", OTHER, "float32", (N, 3)), ("cells", DATA, "uint8", (room * 24,)),
        ("table", DATA + room * 24, "int64", (SIZE,)), ("out", OTHER + (1 << 20), "int64", (N,)),
    ]  # fmt: skip
    return overfilled(
        native_view(
            folder, PROGRAM, source.replace("MORE", more), at="lib.subsample", way=[("subsample", "while (*slot")],
            outer="run(xyz, 2.5", numbers={"n": N, "size": SIZE}, arrays=arrays, **how,
        )
    )  # fmt: skip


def test_buffer_is_named_with_its_room_and_how_many_elements_are_added(tmp_path: Path) -> None:
    """And what the program made its size of."""
    told = found(tmp_path)
    assert told.summary == (
        "subsample() may have written past `cells` before, which has room for 178 elements of cell_t, while ops.c:11 "
        "adds up to `n` = 1000"
    )
    assert (
        "line 10 passes room for 178, as `size` says, which is `max(int(n * ratio), 1)` (line 6) with `ratio` = `2.5 / "
        "14` (line 13)"
    ) in told.advice
    assert "ops.c:11 (`cell_t *c = cells + count++;`) compares their number with nothing" in told.advice


def test_number_beyond_the_room_in_a_register_makes_it_probable(tmp_path: Path) -> None:
    assert "probably wrote past `cells`" in found(tmp_path, registers={"r9": 240, "r12": N}).summary
    assert "may have written past `cells`" in found(tmp_path, registers={"r9": 120, "r12": N}).summary


def test_library_that_is_gone_is_read_from_the_source_beside_the_program(tmp_path: Path) -> None:
    assert found(tmp_path, gone=True) is not None


@pytest.mark.parametrize(
    ("source", "how"),
    [
        (SOURCE, {"room": N}),
        (SOURCE, {"more": "&& count < size"}),
        (SOURCE.replace("    long count = 0;", "    long count = 0;\n    if (n > size) n = size;"), {}),
        (SOURCE.replace("cells + count++", "cells + key % size"), {}),
        (SOURCE.replace("    long count = 0;", "    long count = 0;\n    cells = malloc(n * 24);"), {}),
        (SOURCE.replace("i < n; i++", "i < n; i += 10"), {}),
    ],
    ids=["room for all", "compared", "limited", "no counter", "another buffer", "fewer rounds"],
)
def test_buffer_that_has_room_is_no_reason(source: str, how: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, source, **how) is None
