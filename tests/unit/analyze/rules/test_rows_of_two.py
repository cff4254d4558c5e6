"""A row of two storages, of which one has so many: by the same distance from both first bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

SMALL, LARGE, ROW_BYTES, ROW = 0x5581_0000_1000, 0x7F00_0000_0000, 4096, 6144
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]


def crashed(run: Path, shift: int = 0, row: int = ROW, **more: int) -> Report:
    box = Box(pid=101).alloc(SMALL, 64 * ROW_BYTES).alloc(LARGE, 2 * ROW * ROW_BYTES)
    addr = SMALL + ROW * ROW_BYTES
    return died(
        run, box=box, addr=addr, stack_of=[(s.TORCH_CPU, "at::native::norm_kernel")], python=[("step", s.SCRIPT, 41)],
        registers={"rdx": addr, "rax": SMALL, "rcx": LARGE + ROW * ROW_BYTES + shift, "r13": row, **more},
        code_bytes=LOAD, mappings=[PROGRAM],
    )  # fmt: skip


def test_row_that_only_the_larger_of_two_storages_has_is_out_of_bounds_of_the_other(run: Path) -> None:
    report = crashed(run)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "row 6144 of a tensor of 256.0 KiB, which has 64 of 4096 bytes" in summary(report)
    assert advice(report).startswith("Compare the shapes of a tensor of 256.0 KiB and a tensor of 48.0 MiB")


def test_row_is_not_named_where_two_numbers_may_be_it(run: Path) -> None:
    """Four times as many rows of a fourth of the bytes lead there as well."""
    report = crashed(run, r14=4 * ROW)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "row " not in summary(report)
    assert "24.0 MiB from the start of a tensor of 256.0 KiB, as far as it was in a tensor of 48.0 MiB" in summary(
        report
    )


@pytest.mark.parametrize(("shift", "row"), [(64, ROW), (0, 6145)], ids=["another distance", "no row of it"])
def test_pointer_elsewhere_in_another_storage_says_nothing(run: Path, shift: int, row: int) -> None:
    assert verdict(crashed(run, shift, row)) == ("wild-pointer", "possible")
