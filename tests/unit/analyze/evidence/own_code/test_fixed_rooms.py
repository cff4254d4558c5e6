"""Buffers with room for a fixed number per item: which of them an argument of the call may overrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.own_code.own_allocations import own_allocation
from pytracer.analyze.evidence.own_code.short_allocations import short_rooms
from tests.support.native_views import DATA, OTHER, native_view

SOURCE = """\
#define MOST 4
static void widen(const float *from, float *row, int width, int bands)
{
    for (int x = 0; x < width; x++) {
        float *out = row + (size_t)x * bands;
        for (int c = 0; c < bands; c++)
            out[c] = from[x * bands + c];
    }
}
void resize(const float *from, int w, int bands, float *to)
{
    CHECK
    float *row = malloc(sizeof(float) * (size_t)w * MOST);
    widen(from, row, w, bands);
    free(row);
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(image, out):
    h, w, c = image.shape
    lib.resize(image.ctypes.data, w, c, out.ctypes.data)
run(1, 2)
"""


def source(*, check: str = "", **parts: str) -> str:
    text = SOURCE.replace("CHECK", check)
    for old, new in parts.items():
        text = text.replace({"made": "float *row = malloc(sizeof(float) * (size_t)w * MOST);", "free": "free(row);",
                             "used": "widen(from, row, w, bands);", "most": "#define MOST 4"}[old], new)  # fmt: skip
    return text


def suspect(folder: Path, text: str, *, bands: int | None) -> str | None:
    view = native_view(
        folder, PROGRAM, text, at="lib.resize", way=[("resize", "free(row)")],
        numbers={"w": 30, **({"c": bands} if bands is not None else {})},
        arrays=[("image", DATA, "float32", (20, 30, bands or 1)), ("out", OTHER, "float32", (20, 30, 1))],
    )  # fmt: skip
    if bands is None:
        view.crash.arrays = ()
    found = own_allocation(view)
    return found.summary if found is not None else None


def test_buffer_for_four_is_named_where_the_call_passes_more(tmp_path: Path) -> None:
    words = suspect(tmp_path, source(), bands=6)
    assert words is not None and words.endswith(
        "makes room for `w * MOST` elements (`MOST` is 4), while ops.c:5 uses `w * bands` elements, with `bands` = 6 "
        "(`c` of the line)"
    )


def test_buffer_is_no_suspect_where_the_call_passes_no_more(tmp_path: Path) -> None:
    assert suspect(tmp_path, source(), bands=3) is None


@pytest.mark.parametrize(
    "parts",
    [
        {"made": "float *row = (float *)malloc(w * 4 * sizeof(float));"},
        {"made": "float *row = calloc(w * MOST, sizeof(float));"},
        {"made": "float *row = new float[w * MOST];", "free": "delete[] row;"},
        {"made": "std::vector<float> row(w * MOST);", "used": "for (int i = 0; i < w; ++i) row[i * bands] = from[i];"},
        {"most": "enum { MOST = 4 };"},
        {"most": "static const int MOST = 4;"},
        {"used": "for (int i = 0; i < w; i++) row[bands * i + 1] = 0;"},
    ],
)
def test_other_ways_to_write_it_are_found(parts: dict[str, str]) -> None:
    found = [*short_rooms(source(**parts))]
    assert [(item.room.argument, item.room.most) for item in found if item.room is not None] == [("bands", 4)]


@pytest.mark.parametrize(
    "parts",
    [
        {"check": "if (bands > MOST) return;"},
        {"check": "assert(bands <= 4);"},
        {"check": "bands = std::min(bands, 4);"},
        {"made": "float *row = malloc(sizeof(float) * w * bands);"},
        {"made": "float *row = malloc(sizeof(float) * w * bands * MOST);"},
        {"used": "for (int i = 0; i < w; i++) row[i * 4 + 1] = 0;"},
        {"used": "for (int i = 0; i < bands; i++) row[i * w] = 0;"},  # of other items
        {"used": "for (int i = 0; i < w; i++) out[i * bands] = row[i];"},
        {"used": "for (int i = 0; i < w; i++) row[i * bands / 32] |= 1;"},  # of bits
        {"used": "row = realloc(row, 4 * w * bands); widen(from, row, w, bands);"},
        {"check": "switch (bands) { case 1: case 3: break; default: return; }"},
    ],
)
def test_buffers_that_are_large_enough_or_checked_are_not_told(parts: dict[str, str]) -> None:
    assert not [*short_rooms(source(**parts))]
