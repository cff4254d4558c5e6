"""Loops of the program's own C that store an infinity from an index on that may be negative."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.own_code.infinity_stores import _sign, stores

KERNEL = """void mask(float *row, int r, int n, int w) {{
    int last = {last};
{more}    for (int c = {start}; c < w; c++) {store};
}}
"""


def found(start: str, last: str = "r - n", store: str = "row[c] = -INFINITY", more: str = "") -> list[tuple[str, str]]:
    text = KERNEL.format(start=start, last=last, store=store, more=more)
    return [(item.start, item.value or "") for item in stores(text, "-")]


@pytest.mark.parametrize(
    ("start", "store"),
    [
        ("last + 1", "row[c] = -INFINITY"),
        ("last", "row[c] = -HUGE_VALF"),
        ("last + 1", "{ row[c] = -std::numeric_limits<float>::infinity(); }"),
    ],
)
def test_start_that_is_a_difference_is_named_with_it(start: str, store: str) -> None:
    assert found(start, store=store) == [(start, "r - n")]


def test_difference_in_the_loop_itself() -> None:
    assert found("r - n") == [("r - n", "")]


@pytest.mark.parametrize(
    "how",
    [
        {"start": "0"},
        {"start": "last + 1", "last": "r + n"},
        {"start": "last + 1", "last": "max(r - n, -1)"},
        {"start": "last + 1", "last": "r > n ? r - n : 0"},
        {"start": "last + 1", "more": "    if (last < -1) last = -1;\n"},
        {"start": "r > n ? r - n : 0"},
        {"start": "last + 1", "store": "row[c] = INFINITY"},
        {"start": "last + 1", "store": "row[c] = -1"},
        {"start": "last + 1", "store": "if (c >= 0) row[c] = -INFINITY"},
    ],
)
def test_look_alikes_are_none(how: dict[str, str]) -> None:
    """Starts that are not negative, other numbers, and a test of the index."""
    assert not found(**how)


@pytest.mark.parametrize(
    ("word", "sign"),
    [(0xFF800000FF800000, "-"), (0x7F8000007F800000, ""), (0xFFF0000000000000, "-"), (0x21, None), (0xFF800000, None)],
)
def test_word_of_infinities(word: int, sign: str | None) -> None:
    assert _sign(word) == sign
