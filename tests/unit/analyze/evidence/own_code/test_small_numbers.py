"""Numbers that a line passes are not to blame for an access that went further than all of them could lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.small_numbers import are_too_small

BASE = 0x5581_0000_0000


def view_of(distance: int, kind: str = "past-storage", *, known: bool = True) -> Any:
    storage = SimpleNamespace(base=BASE) if known else None
    place = SimpleNamespace(addr=BASE + distance, kind=kind, storage=storage, overrun=None)
    return SimpleNamespace(place=place, crash=None, fault=None)


@pytest.mark.parametrize(
    ("numbers", "distance", "small"),
    [
        ((4, 40), 4_000_000, True),
        ((4, 0), 4_000_000, True),
        ((4, 40), 2_000, False),
        ((4, 1_000_000), 4_000_000, False),
        ((-1, 40), 4_000_000, False),
        ((), 4_000_000, False),
    ],
)
def test_numbers_are_small_where_even_their_product_ends_before(
    numbers: tuple[int, ...], distance: int, small: bool
) -> None:
    assert are_too_small(view_of(distance), numbers, ()) == small


def test_nearest_memory_that_the_line_passes_decides() -> None:
    assert not are_too_small(view_of(4_000_000), (4, 40), (BASE + 3_999_000,))


def test_without_memory_to_count_from_nothing_is_known() -> None:
    assert not are_too_small(view_of(4_000_000, known=False), (4, 40), ())
    assert not are_too_small(view_of(1 << 40, "unmapped"), (4, 40), ())
