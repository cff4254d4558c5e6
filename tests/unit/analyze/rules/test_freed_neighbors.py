"""A fault in a freed block right behind a live storage: an access that ran on, or a use after free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, memory, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

LIVE, PLANE = 0x5581_0000_1000, 0x4000
FREED = LIVE + 3 * PLANE + 128
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
KERNEL = [("/tmp/pkg/model.wrapper.so", "kernel._omp_fn.0")]
PACKAGE = [*KERNEL, ("/tmp/pkg/model.wrapper.so", "torch::aot_inductor::AOTInductorModel::run_impl")]


def crashed(run: Path, *stack: int, rbx: int = LIVE + 5 * PLANE, of: Any = KERNEL, live: int = 3 * PLANE) -> Report:
    box = Box(pid=101).alloc(LIVE, live).alloc(FREED, 8 * PLANE).free(FREED)
    addr, rsp = FREED + 0x6000, 0x7FFD_0000_0100
    return died(
        run, box=box, addr=addr, stack_of=of, python=[("step", s.SCRIPT, 41)], code_bytes=LOAD, mappings=[PROGRAM],
        registers={"rdx": addr, "rbx": rbx, "rsp": rsp}, sp=rsp, memory=(memory(rsp, *stack, register="rsp"),),
    )  # fmt: skip


def test_planes_of_the_live_storage_that_lead_into_a_freed_block_are_out_of_bounds(run: Path) -> None:
    """Its start is on the stack, a plane further is, and rbx is five planes from it: nobody has the freed block."""
    report = crashed(run, LIVE + PLANE, LIVE)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "past the end of a storage of 48.0 KiB" in summary(report)


def test_package_of_aotinductor_is_checked_for_the_shapes_it_was_exported_for(run: Path) -> None:
    report = crashed(run, LIVE + PLANE, LIVE, of=PACKAGE)
    assert "dynamic_shapes" in advice(report) and "AOTI_RUNTIME_CHECK_INPUTS=1" in advice(report)


@pytest.mark.parametrize("words", [(LIVE, LIVE + PLANE, FREED), ()], ids=["start at hand", "nothing of the live one"])
def test_use_after_free_stays_certain_where_nothing_was_counted_from_its_neighbor(
    run: Path, words: tuple[int, ...]
) -> None:
    assert verdict(crashed(run, *(words or (7,)))) == ("use-after-free", "certain")


def test_use_after_free_behind_a_live_storage_is_never_certain_without_its_start(run: Path) -> None:
    """The look-alike: no row of the live one leads there, so that it may be either."""
    report = crashed(run, LIVE + PLANE, LIVE, rbx=LIVE + 5 * PLANE + 64)
    assert verdict(report) == ("use-after-free", "possible")


def test_live_storage_that_ends_far_before_the_freed_block_is_no_suspect(run: Path) -> None:
    assert verdict(crashed(run, LIVE + PLANE, LIVE, live=PLANE * 2)) == ("use-after-free", "certain")
