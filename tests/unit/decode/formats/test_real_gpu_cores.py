"""Core dumps that a driver wrote (tests/cuda/dumps/README.md), against what cuda-gdb 13.0 says of each."""

from __future__ import annotations

import lzma
import time
from pathlib import Path

import pytest

from pytracer.decode.formats.gpu_core import read_gpu_core
from pytracer.decode.types.devices import GpuCore, GpuException

DUMPS = Path(__file__).parents[3] / "cuda" / "dumps"


def read(tmp_path: Path, name: str) -> GpuCore:
    """One of the dumps, unpacked."""
    path = tmp_path / f"{name}.nvcudmp"
    path.write_bytes(lzma.decompress((DUMPS / f"{name}.nvcudmp.xz").read_bytes()))
    began = time.process_time()
    core = read_gpu_core(path)
    assert time.process_time() - began < 5
    assert (core.device, core.problem) == ("NVIDIA H200 (PCI 00:06)", None)
    return core


def first(tmp_path: Path, name: str) -> GpuException:
    """The first exception of one."""
    return read(tmp_path, name).exceptions[0]


# `The exception was triggered at PC ...`, the focus, and the registers.
@pytest.mark.parametrize(
    ("dump", "name", "pc", "function", "block", "thread", "sm"),
    [
        ("gather4", "warp misaligned address", 0x7F87D37A00D0, "gather4", (0, 0, 0), (128, 0, 0), 124),
        (
            "recurse",
            "warp out-of-range address",
            0x7FDD3B7A15C0,
            "deep(float const*, int)",
            (0, 0, 0),
            (224, 0, 0),
            124,
        ),
        ("far_read", "warp illegal address", 0x7F8C137A00E0, "far_read", (0, 0, 0), (0, 0, 0), 124),
        ("far_write", "warp illegal address", 0x7FE2BB7A0100, "far_write", (0, 0, 0), (128, 0, 0), 124),
        ("grouped_sum", "warp illegal address", 0x7FDE337AB6E0, "sum_group", (0, 0, 0), (64, 0, 0), 124),
        ("add_far", "warp illegal address", 0x7F3F517A00A0, "add_far", None, None, 124),
        ("trap", "trap", 0x7F111B7A00A0, "check", (0, 0, 0), (5, 0, 0), 124),
    ],
)
def test_places_are_those_that_cuda_gdb_prints(
    tmp_path: Path, dump: str, name: str, pc: int, function: str, block: object, thread: object, sm: int
) -> None:
    """Name, place, function and focus; cuda-gdb itself ends at add_far, after its first line."""
    core = read(tmp_path, dump)
    (item,) = core.exceptions
    assert (item.name, item.pc, item.pc_exact, item.function) == (name, pc, True, function)
    assert (item.block, item.thread, item.sm) == (block, thread, sm)


def test_the_same_kernel_with_two_exceptions(tmp_path: Path) -> None:
    """`scale_rows (triton_far.py:8)`, block (9,0,0), thread (32,0,0) is cuda-gdb's focus: the first of SM 1."""
    illegal, space = read(tmp_path, "triton_far").exceptions
    assert (illegal.name, illegal.warps, space.name, space.warps) == (
        "warp illegal address", 68, "warp invalid address space", 48
    )  # fmt: skip
    assert (space.sm, space.block, space.thread) == (1, (9, 0, 0), (32, 0, 0))
    for item in (illegal, space):
        assert item.pc == 0x7F86C37A0FF0 and (item.kernel, item.offset) == ("scale_rows", 240)
        assert (Path(item.file or "").name, item.line) == ("triton_far.py", 8)


def test_a_device_function_is_named_and_the_kernel_stays(tmp_path: Path) -> None:
    """`<$recurse$_Z4deepPKfi+5328>`."""
    item = first(tmp_path, "recurse")
    assert (item.kernel, item.function, item.offset, item.access) == ("recurse", "deep(float const*, int)", 5328, None)


def test_a_masked_load_of_triton_has_its_line(tmp_path: Path) -> None:
    """`sum_group (grouped_sum.py:20)`; the predicates of its mask were compared again."""
    item = first(tmp_path, "grouped_sum")
    assert (Path(item.file or "").name, item.line) == ("grouped_sum.py", 20)
    access = item.access
    assert access is not None and (access.kind, access.nbytes, access.guarded) == ("read", 4, True)
    assert [thread.addr for thread in access.threads] == [0x7FDE02000100 + 4 * lane for lane in range(32)]


def test_the_address_of_a_misaligned_read(tmp_path: Path) -> None:
    """`LDG.E.128 R8,desc[UR4][R2.64]`; R2 0xcbe00804, R3 0x7f87: `x[1:]`, 16 bytes for each thread."""
    item = first(tmp_path, "gather4")
    access = item.access
    assert access is not None and (access.kind, access.nbytes, access.guarded) == ("read", 16, False)
    pointer = int.from_bytes(item.parameters[:8], "little")
    assert pointer == 0x7F87CBE00004
    assert [(t.thread[0], t.addr) for t in access.threads] == [(i, pointer + 16 * i) for i in range(128, 160)]


def test_the_address_of_a_write(tmp_path: Path) -> None:
    """`STG.E desc[UR4][R6.64],R3`; R6 0xb3e24000, R7 0x7ff2: out + (1 << 34) + threadIdx.x * n, n = 256."""
    item = first(tmp_path, "far_write")
    access = item.access
    assert access is not None and (access.kind, access.nbytes) == ("write", 4)
    pointer = int.from_bytes(item.parameters[8:16], "little")
    thread = access.threads[0]
    assert (thread.thread, thread.addr) == ((128, 0, 0), 0x7FF2B3E24000)
    assert all(t.addr == pointer + 4 * ((1 << 34) + t.thread[0] * 256) for t in access.threads)


def test_the_addresses_of_two_exceptions_of_one_instruction(tmp_path: Path) -> None:
    """`row * stride` in 32 bits: row 179 is 4 GiB before the tensor, row 9 4 GiB behind its start."""
    illegal, space = read(tmp_path, "triton_far").exceptions
    pointer = int.from_bytes(illegal.parameters[:8], "little")
    for item, block, rows in ((illegal, 179, -(1 << 32)), (space, 9, 1 << 32)):
        assert item.access is not None and item.access.nbytes == 16
        thread = item.access.threads[0]
        assert (thread.block, thread.addr) == ((block, 0, 0), pointer + rows + thread.thread[0] * 16)


def test_a_load_that_overwrote_its_address_has_none(tmp_path: Path) -> None:
    """`LDG.E R5,desc[UR4][R4.64]`: cuda-gdb prints R5 as 0, where 0x7f9c was."""
    assert first(tmp_path, "far_read").access is None
    assert first(tmp_path, "far_read").registers[5] == 0


def test_warps_that_had_ended_leave_the_kernel(tmp_path: Path) -> None:
    """An atomic operation without a result does not hold its warp."""
    item = first(tmp_path, "add_far")
    assert (item.kernel, item.offset, item.warps, item.grid, item.access) == ("add_far", 160, 0, (4, 1, 1), None)
    assert len(item.parameters) == 20


def test_a_trap_is_found_where_its_warp_stands(tmp_path: Path) -> None:
    """`Program terminated with signal SIGTRAP`; `=> <check+176>` behind `BPT.TRAP 0x1`, in one warp of each block."""
    item = first(tmp_path, "trap")
    assert (item.kernel, item.offset, item.warps, item.access) == ("check", 160, 4, None)
