"""Numbers whose bytes were read in the other order, and numbers that only look like it."""

from __future__ import annotations

import struct

import pytest

from pytracer.analyze.evidence.indices.byte_order import is_power, reversed_number, reversed_range
from pytracer.decode.types.snapshot import Argument


def read_little(number: int, form: str) -> int:
    """What a program gets that reads a big-endian number as a little-endian one."""
    return int(struct.unpack(f"<{form}", struct.pack(f">{form}", number))[0])


def tensor(low: int, high: int, dtype: str = "int64") -> Argument:
    """Of whole numbers from `low` to `high`."""
    return Argument(1, 64, 100, 0, (100,), 1, dtype, "cpu", low, high, 0, 0, None, "reference")


@pytest.mark.parametrize(("number", "form"), [(60, "i"), (60000, "I"), (7, "q"), (1_000_000, "q"), (200, "q")])
def test_small_number_with_its_bytes_reversed_is_recognized(number: int, form: str) -> None:
    """Also where it became negative."""
    assert reversed_number(read_little(number, form)) == number


@pytest.mark.parametrize("number", [0, 60, 4096, 123456789, -1, (1 << 40) + 5])
def test_number_is_taken_as_it_is_where_its_bytes_reversed_are_no_smaller(number: int) -> None:
    """An index that is only large."""
    assert reversed_number(number) is None


def test_tensor_is_told_by_both_of_its_ends() -> None:
    """7..64 as big-endian numbers of 64 bits."""
    assert reversed_range(tensor(read_little(7, "q"), read_little(64, "q"))) == (7, 64)
    assert reversed_range(tensor(read_little(7, "q"), 12)) is None


def test_limits_are_not_taken_for_numbers_in_the_other_byte_order() -> None:
    """Powers of two, which programs use as limits and processors for NaN."""
    assert is_power(1 << 62)
    assert reversed_range(tensor(-(1 << 63), 1 << 62)) is None
    assert reversed_range(tensor(3 << 56, 3 << 56)) is None


def test_other_types_have_no_byte_order_here() -> None:
    """A byte has none, and a float is no index."""
    assert reversed_range(tensor(0, 255, "uint8")) is None
    assert reversed_range(None) is None
