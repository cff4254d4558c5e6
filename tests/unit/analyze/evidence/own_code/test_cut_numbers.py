"""Numbers of Python that do not fit into the C int by which ctypes passes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.cut_numbers import cut_number
from tests.support.native_views import native_view

SOURCE = """\
float row_sum(const float *table, long first, long n)
{
    return table[first];
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
KINDS
def run(table, row, dim):
    return lib.row_sum(table, row * dim, dim)
run(1, 2, 3)
"""
ROW, DIM = 39_000, 65_536
CUT = ROW * DIM - (1 << 32)


def found(folder: Path, *, kinds: str = "", index: int = CUT, row: int = ROW) -> Any:
    program = PROGRAM.replace("KINDS", kinds and f"lib.row_sum.argtypes = [ctypes.c_void_p, {kinds}, ctypes.c_long]")
    view = native_view(
        folder, program, SOURCE, at="lib.row_sum(", way=[("row_sum", "return table")], numbers={"row": row, "dim": DIM}
    )
    return cut_number(view, index)


def test_product_that_needs_more_than_31_bits_is_named_with_its_number(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert told is not None
    assert told.clause == "; `row * dim` is 2555904000, of which a C int keeps the lower 32 bits"
    assert told.advice.startswith(
        "Set `lib.row_sum.argtypes` before line 5 with ctypes.c_int64 (or c_long) for argument 2"
    )


def test_argtypes_of_a_c_int_are_named_with_their_line(tmp_path: Path) -> None:
    told = found(tmp_path, kinds="ctypes.c_int")
    assert told is not None and "argtypes` at line 3 with ctypes.c_int64" in told.advice


@pytest.mark.parametrize("how", [{"kinds": "ctypes.c_long"}, {"index": CUT - 1}, {"index": -5}, {"row": 3}])
def test_number_that_arrives_whole_or_is_another_is_not_named(how: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, **how) is None


def test_lower_half_that_is_as_small_as_other_numbers_is_only_named_for_the_same_index(tmp_path: Path) -> None:
    assert found(tmp_path, index=3000, row=DIM) is None
    assert found(tmp_path, index=DIM * 5, row=DIM + 5) is not None


def test_number_that_another_type_of_ctypes_takes_is_passed_whole(tmp_path: Path) -> None:
    program = PROGRAM.replace("row * dim, dim", "ctypes.c_long(row * dim), dim").replace("KINDS", "")
    view = native_view(
        tmp_path, program, SOURCE, at="lib.row_sum(", way=[("row_sum", "return")], numbers={"row": ROW, "dim": DIM}
    )
    assert cut_number(view, CUT) is None
