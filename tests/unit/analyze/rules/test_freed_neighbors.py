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


def _fault(*stack: int, rbx: int = 0, of: Any = KERNEL) -> dict[str, Any]:
    addr, rsp = FREED + 0x6000, 0x7FFD_0000_0100
    return {
        "addr": addr, "stack_of": of, "python": [("step", s.SCRIPT, 41)], "code_bytes": LOAD, "mappings": [PROGRAM],
        "registers": {"rdx": addr, "rbx": rbx, "rsp": rsp}, "sp": rsp, "memory": (memory(rsp, *stack, register="rsp"),),
    }  # fmt: skip


def crashed(run: Path, *stack: int, rbx: int = LIVE + 5 * PLANE, of: Any = KERNEL, live: int = 3 * PLANE) -> Report:
    box = Box(pid=101).alloc(LIVE, live).alloc(FREED, 8 * PLANE).free(FREED)
    return died(run, box=box, **_fault(*stack, rbx=rbx, of=of))


def test_planes_of_the_live_storage_that_lead_into_a_freed_block_are_out_of_bounds(run: Path) -> None:
    """Its start is on the stack, a plane further is, and rbx is five planes from it: nobody has the freed block."""
    report = crashed(run, LIVE + PLANE, LIVE)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "past the end of a storage of 48.0 KiB" in summary(report)


def test_package_of_aotinductor_is_checked_for_the_shapes_it_was_exported_for(run: Path) -> None:
    report = crashed(run, LIVE + PLANE, LIVE, of=PACKAGE)
    assert "dynamic_shapes" in advice(report) and "AOTI_RUNTIME_CHECK_INPUTS=1" in advice(report)


def test_package_of_aotinductor_is_known_by_the_call_of_its_opener_too(run: Path) -> None:
    """A kernel on a thread of OpenMP's has none of the package's functions on its own stack."""
    package = f"{s.TORCH}/export/pt2_archive/_package.py"
    python = [("AOTICompiledModel.__call__", package, 743), ("step", s.SCRIPT, 41)]
    box = Box(pid=101).alloc(LIVE, 3 * PLANE).alloc(FREED, 8 * PLANE).free(FREED)
    fault = {**_fault(LIVE + PLANE, LIVE, rbx=LIVE + 5 * PLANE), "python": python}
    assert "dynamic_shapes" in advice(died(run, box=box, **fault))


@pytest.mark.parametrize("words", [(LIVE, LIVE + PLANE, FREED), ()], ids=["start at hand", "no live one at hand"])
def test_use_after_free_is_certain_where_nothing_was_counted_from_a_live_storage(
    run: Path, words: tuple[int, ...]
) -> None:
    assert verdict(crashed(run, *(words or (7,)), rbx=0)) == ("use-after-free", "certain")


def test_use_after_free_behind_a_live_storage_is_never_certain_without_its_start(run: Path) -> None:
    """The look-alike: no row of the live one leads there, so that it may be either."""
    report = crashed(run, LIVE + PLANE, LIVE, rbx=LIVE + 5 * PLANE + 64)
    assert verdict(report) == ("use-after-free", "possible")


def test_rows_of_a_live_storage_lead_to_a_freed_one_far_away_where_their_number_was_held(run: Path) -> None:
    """Planes of 0x6000: the first one's pointer and the number, 16, are on the stack: a thread's part begins there."""
    plane, number = 0x6000, 16
    live = FREED + 0x6000 - number * plane
    box = Box(pid=101).alloc(live, 3 * plane).alloc(FREED, 8 * PLANE).free(FREED)
    report = died(run, box=box, **_fault(live + plane, number))
    assert verdict(report) == ("out-of-bounds", "likely")


@pytest.mark.parametrize(("plane", "number"), [(0x6000, 7), (0x8000, 16)], ids=["number not held", "power of two"])
def test_rows_that_any_storage_has_lead_nowhere(run: Path, plane: int, number: int) -> None:
    live = FREED + 0x6000 - 16 * plane
    box = Box(pid=101).alloc(live, 3 * plane).alloc(FREED, 8 * PLANE).free(FREED)
    assert verdict(died(run, box=box, **_fault(live + plane, number))) == ("use-after-free", "likely")


def test_use_after_free_is_likely_where_only_a_pointer_into_a_live_storage_was_held(run: Path) -> None:
    report = crashed(run, LIVE + PLANE, LIVE, live=PLANE * 2)
    assert verdict(report) == ("use-after-free", "likely")
    assert any("what the address was counted from" in item for item in (report.findings or [])[0].missing or [])


@pytest.mark.parametrize(("start", "confidence"), [(0x7F10_0000_0000, "certain"), (0x7FFD_0000_0080, "likely")])
def test_address_that_a_variable_of_c_kept_was_not_counted_from_what_the_stack_held(
    run: Path, start: int, confidence: str
) -> None:
    """r8 is near a word that is the address: in a library's data; or on the stack, where it may have been computed."""
    fault = _fault(LIVE + PLANE, LIVE)
    block = memory(start, 7, fault["addr"], register="r8")
    data = (0x7F10_0000_0000, 0x7F10_0000_1000, "rw-p", 0, "/tmp/pkg/libmonitor.so")
    stack = (0x7FFD_0000_0000, 0x7FFD_0000_1000, "rw-p", 0, "[stack]")
    box = Box(pid=101).alloc(LIVE, 2 * PLANE).alloc(FREED, 8 * PLANE).free(FREED)
    report = died(run, box=box, **{**fault, "memory": (*fault["memory"], block), "mappings": [PROGRAM, data, stack]})
    assert verdict(report) == ("use-after-free", confidence)
