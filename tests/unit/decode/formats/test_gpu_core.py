"""Core dumps of CUDA devices, in NVIDIA's documented layout; and files that are not dumps, or incomplete."""

from __future__ import annotations

import gzip
import os
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from pytracer.decode.formats.gpu_core import read_gpu_core, read_gpu_cores
from pytracer.decode.formats.name_pattern import NamePattern
from pytracer.decode.types.devices import GpuException
from tests.support.gpu_cores import (
    COMPARE,
    EXIT,
    KERNEL_ADDR,
    LOAD_16,
    MASKED_4,
    MOVE,
    STORE_4,
    TRAP,
    WAIT,
    Core,
    Lane,
    Warp,
    accessing,
    faulting,
    instructions,
)

PC = KERNEL_ADDR + 0x1A0


def test_kernel_place_and_thread(tmp_path: Path) -> None:
    """All that a dump records about one illegal access."""
    core = read_gpu_core(faulting(1, 2, 3, 4, parameters=b"12345678").write(tmp_path / "node1.42.nvcudmp"), "node1", 42)
    assert (core.host, core.pid, core.device, core.problem) == ("node1", 42, "NVIDIA H200 (PCI 41:00)", None)
    (item,) = core.exceptions
    assert (item.code, item.name, item.pc, item.pc_exact) == (14, "warp illegal address", PC, True)
    assert (item.kernel, item.offset) == ("scatter_add(float*, long const*, float const*, int)", 0x1A0)
    assert (item.sm, item.block, item.thread, item.warps) == (3, (2, 0, 0), (33, 0, 0), 1)
    assert (item.grid, item.block_size) == ((40, 1, 1), (256, 1, 1))
    assert (item.registers, item.parameters) == ((1, 2, 3, 4), b"12345678")


def test_rows_of_newer_drivers_are_longer(tmp_path: Path) -> None:
    """Members are appended; sh_entsize is the distance of rows."""
    (old,) = read_gpu_core(faulting(9).write(tmp_path / "old")).exceptions
    (new,) = read_gpu_core(faulting(9, tail=24).write(tmp_path / "new")).exceptions
    assert old == new


def test_an_exception_that_only_the_sm_tells(tmp_path: Path) -> None:
    """No lane has it, but the warp has the place."""
    core = Core([Warp([Lane(PC + 32)], PC)], sm_exception=10)
    (item,) = read_gpu_core(core.write(tmp_path / "core")).exceptions
    assert (item.name, item.pc, item.pc_exact) == ("device illegal address", PC, True)


def test_without_a_told_place_the_threads_own_is_marked(tmp_path: Path) -> None:
    """The program counter had advanced past it."""
    (item,) = read_gpu_core(Core([Warp([Lane(PC, 5)])]).write(tmp_path / "core")).exceptions
    assert (item.pc, item.pc_exact) == (PC, False)


def test_alike_exceptions_are_counted(tmp_path: Path) -> None:
    """Thousands of warps have the same exception."""
    warps = [Warp([Lane(PC, 14)], PC, (number // 8, 0, 0)) for number in range(40)]
    warps += [Warp([Lane(PC)], None, (9, 0, 0)), Warp([Lane(PC, 6)], PC + 64, (9, 0, 0))]
    first, second = read_gpu_core(Core(warps).write(tmp_path / "core")).exceptions
    assert (first.warps, first.block, second.warps, second.code) == (40, (0, 0, 0), 1, 6)


def test_without_an_image_the_kernel_has_no_name(tmp_path: Path) -> None:
    """Images may be left out of a dump."""
    (item,) = read_gpu_core(faulting(kernel=None).write(tmp_path / "core")).exceptions
    assert (item.kernel, item.function, item.offset, item.pc) == (None, None, None, PC)


def only(core: Core, tmp_path: Path) -> GpuException:
    """The one exception of a dump."""
    (item,) = read_gpu_core(core.write(tmp_path / "core")).exceptions
    return item


def trapped(broken: bool = True, active: int = 2, pc: int = KERNEL_ADDR + 0x50, **more: object) -> Core:
    """Two threads behind a BPT.TRAP at 0x40, the second of them active."""
    lanes = [Lane(pc, thread=(0, 0, 0)), Lane(pc, thread=(1, 0, 0), **more)]  # type: ignore[arg-type]
    return Core([Warp(lanes, active=active, broken=broken)], code=bytes(0x40) + instructions(TRAP, EXIT))


def test_a_trap_has_no_exception_of_the_device(tmp_path: Path) -> None:
    """The warp is at a breakpoint, behind BPT.TRAP; the thread is an active one."""
    item = only(trapped(), tmp_path)
    assert (item.code, item.name, item.pc, item.pc_exact) == (0, "trap", KERNEL_ADDR + 0x40, True)
    assert (item.thread, item.warps, item.offset) == ((1, 0, 0), 1, 0x40)


@pytest.mark.parametrize(
    "core",
    [trapped(broken=False), trapped(active=0), trapped(pc=KERNEL_ADDR + 0x40), trapped(pc=KERNEL_ADDR + 0x60)],
)
def test_what_only_looks_like_a_trap_is_none(tmp_path: Path, core: Core) -> None:
    """Other warps wait behind the same instruction, or at another one."""
    found = read_gpu_core(core.write(tmp_path / "core"))
    assert (found.exceptions, found.problem) == ((), "it holds no exception")


def test_a_trap_in_the_drivers_code_has_its_caller(tmp_path: Path) -> None:
    """__assertfail() is in no image: the place is where it returns to."""
    item = only(trapped(pc=0x1000, return_addrs=(0x2000, KERNEL_ADDR + 0x30)), tmp_path)
    assert (item.code, item.pc, item.pc_exact, item.offset) == (0, KERNEL_ADDR + 0x30, False, 0x30)
    assert read_gpu_core(trapped(pc=0x1000).write(tmp_path / "core")).exceptions == ()


def test_a_function_inside_of_a_kernel_is_named(tmp_path: Path) -> None:
    """The innermost symbol around the place; the kernel stays."""
    kernel = "_Z11scatter_addPfPKlPKfi"
    functions = ((kernel, 0, 0x400), (f"${kernel}$_Z4deepPKfi", 0x100, 0x200), ("$x$_Z5otherv", 0x300, 0x10))
    item = only(faulting(functions=functions), tmp_path)
    assert (item.kernel, item.function, item.offset) == (
        "scatter_add(float*, long const*, float const*, int)", "deep(float const*, int)", 0xA0
    )  # fmt: skip
    item = only(faulting(functions=functions[:1]), tmp_path)
    assert item.function == item.kernel and item.offset == 0x1A0


def test_exceptions_whose_warps_had_ended(tmp_path: Path) -> None:
    """Only the SM has them: no thread, but kernel and parameters if the kernel ran once."""
    item = only(Core([Warp([Lane(PC)])], b"12345678", sm_exception=14, sm_pc=PC), tmp_path)
    assert (item.code, item.pc, item.pc_exact, item.offset, item.parameters) == (14, PC, True, 0x1A0, b"12345678")
    assert item.kernel == "scatter_add(float*, long const*, float const*, int)" and item.grid == (40, 1, 1)
    assert (item.block, item.thread, item.warps, item.registers, item.access) == (None, None, 0, (), None)


ADDRS = tuple(0x7F87_CBE0_0804 + 16 * lane for lane in range(4))


def test_addresses_are_computed_from_the_registers(tmp_path: Path) -> None:
    """One for each active thread."""
    access = only(accessing(6, ADDRS, LOAD_16, WAIT), tmp_path).access
    assert access is not None and (access.kind, access.nbytes, access.guarded) == ("read", 16, False)
    assert [(t.block, t.thread, t.addr) for t in access.threads] == [
        ((2, 0, 0), (lane, 0, 0), addr) for lane, addr in enumerate(ADDRS)
    ]


@pytest.mark.parametrize(
    "core",
    [
        accessing(6, ADDRS, LOAD_16, MOVE, WAIT),
        accessing(6, ADDRS, WAIT, WAIT),
        accessing(6, ADDRS, LOAD_16, WAIT, capability=(6, 0)),
        accessing(6, ADDRS, LOAD_16, WAIT, capability=(13, 0)),
        accessing(6, ADDRS, LOAD_16, WAIT, kernel=None),
        faulting(*range(16)),
    ],
)
def test_addresses_that_are_not_certain_are_not_given(tmp_path: Path, core: Core) -> None:
    """Registers that changed, other instructions, unknown devices, no code."""
    assert only(core, tmp_path).access is None


def test_predicates_select_the_threads(tmp_path: Path) -> None:
    """Those that the mask left out did not read; if it has changed, all are given, marked."""
    core = accessing(14, ADDRS, MASKED_4, WAIT)
    for lane in core.warps[0].lanes[:3]:
        lane.predicates = (0, 0, 0, 0, 0, 0, 1, 0)
    access = only(core, tmp_path).access
    assert access is not None and [t.addr for t in access.threads] == [ADDRS[3]] and not access.guarded
    access = only(accessing(14, ADDRS, MASKED_4, COMPARE, WAIT), tmp_path).access
    assert access is not None and len(access.threads) == 4 and access.guarded


def test_threads_elsewhere_have_no_address(tmp_path: Path) -> None:
    """Only those that are active, and met it."""
    core = accessing(14, ADDRS, STORE_4, EXIT)
    core.warps[0].active = 0b0110
    access = only(core, tmp_path).access
    assert access is not None and [t.thread[0] for t in access.threads] == [1, 2]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"hello", "it is no ELF file"),
        (b"\x7fELF\x01\x01\x01", "another kind"),
        (Core(machine=62).content(), "not a core dump of a CUDA device"),
        (gzip.compress(faulting().content()), "compressed"),
        (faulting().content()[:500], "it is cut off: the process ended before the driver had written all of it"),
        (Core([Warp([Lane(PC)])]).content(), "it holds no exception"),
    ],
)
def test_other_files_are_told(tmp_path: Path, content: bytes, problem: str) -> None:
    """A sentence, no exception."""
    path = tmp_path / "core"
    path.write_bytes(content)
    core = read_gpu_core(path)
    assert core.exceptions == () and problem in str(core.problem)


def test_every_truncation_and_every_changed_byte_is_survived(tmp_path: Path) -> None:
    """The remaining data is used, or the problem reported."""
    whole = faulting(*range(32), parameters=bytes(64)).content()
    path = tmp_path / "core"
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        assert read_gpu_core(path).problem
    for at in range(0, len(whole), 11):
        for value in (0, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            core = read_gpu_core(path)
            assert core.problem or core.exceptions


def test_a_table_that_is_its_own_parent_ends(tmp_path: Path) -> None:
    """sh_link of damaged files goes in circles."""
    content = bytearray(faulting().content())
    (table,) = struct.unpack_from("<Q", content, 40)
    (count,) = struct.unpack_from("<H", content, 60)
    for number in range(count):
        struct.pack_into("<I", content, table + 64 * number + 40, number)
    path = tmp_path / "core"
    path.write_bytes(content)
    assert read_gpu_core(path).exceptions == ()


def test_dumps_of_a_run_are_found_by_their_pattern(tmp_path: Path) -> None:
    """In the run's own folder, and where the user's variable sends them; older ones there are others'."""
    faulting().write(tmp_path / "run" / "gpu-cores" / "node1.7.nvcudmp")
    faulting().write(tmp_path / "elsewhere" / "core_node-2.8.1763000000")
    faulting().write(tmp_path / "elsewhere" / "unrelated")
    pattern = str(tmp_path / "elsewhere" / "core_%h.%p.%t")
    found = read_gpu_cores(tmp_path / "run", pattern)
    assert [(item.host, item.pid) for item in found] == [("node1", 7), ("node-2", 8)]
    assert [item.pid for item in read_gpu_cores(tmp_path / "run", pattern, since_ns=1 << 62)] == [7]
    assert read_gpu_cores(tmp_path / "nothing", None) == ()


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("%h.%p.core", "a.b.7.core", ("a.b", 7)),
        ("core_%p_%h_%t", "core_12_node_1_x", ("node_1", 12)),
        ("core", "core", (None, None)),
        ("core", "score", None),
        ("%p", "12a", None),
        ("100%.%p", "100%.3", (None, 3)),
        (".*%p", "..3", None),
        ("%h%p", "n123", ("n12", 3)),
        ("%p%p", "12", (None, 12)),
        ("%h", "", None),
    ],
)
def test_pattern_is_no_regular_expression(pattern: str, name: str, found: object) -> None:
    """It is CUDA_COREDUMP_FILE, as recorded in run.json."""
    assert NamePattern(pattern).match(name) == found


def test_hostile_pattern_ends_soon() -> None:
    """Wildcards that each may end anywhere, for many names."""
    began = time.process_time()
    pattern = NamePattern("%ax" * 120 + "y")
    assert not any(pattern.match("x" * 250) for _ in range(10_000))
    assert time.process_time() - began < 5


def test_pattern_lists_directories_only_by_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a pipe or a link in it is not opened."""
    faulting(1).write(tmp_path / "n.1.nvcudmp")
    os.mkfifo(tmp_path / "n.2.nvcudmp")
    (tmp_path / "n.3.nvcudmp").symlink_to("n.1.nvcudmp")
    monkeypatch.chdir(tmp_path)
    assert read_gpu_cores(tmp_path / "run", "./%h.%p.nvcudmp") == ()
    assert [core.pid for core in read_gpu_cores(tmp_path / "run", f"{tmp_path}/%h.%p.nvcudmp")] == [1]
    assert read_gpu_cores(tmp_path / "run", f"{tmp_path}/\0%p") == ()


def _many(sections: list[bytes], tail: bytes) -> bytes:
    """An ELF core of CUDA with these section headers; the last of them has the names, `tail`, behind the table."""
    numbers = (4, 190, 1, 0, 0, 64, 0, 64, 0, 0, 64, 0, 0xFFFF)
    head = b"\x7fELF\x02\x01\x01\x33\x07".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", *numbers)
    first = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, len(sections) + 1, len(sections), 0, 0, 0)
    return head + first + b"".join(sections) + tail


def test_hostile_code_costs_little(tmp_path: Path) -> None:
    """Thousands of broken warps at places of their own, in a function with thousands of others inside."""
    functions = tuple((f"f{number}", number % 0x3F0 + 1, 0x400) for number in range(20_000))
    warps = [
        Warp([Lane(KERNEL_ADDR + number % 0x400 + 16)], None, (number, 0, 0), broken=True) for number in range(1000)
    ]
    path = Core(warps, functions=functions, code=bytes(0x400)).write(tmp_path / "core")
    began = time.process_time()
    assert read_gpu_core(path).exceptions == ()
    assert time.process_time() - began < 20


@pytest.mark.parametrize("kind", ["long names", "overlapping tables", "overlapping images"])
def test_hostile_dump_costs_little(tmp_path: Path, kind: str) -> None:
    """60,000 sections that all have the same long name, or that all are the whole file."""
    count = 60_000
    size = 128 + 64 * (count + 1)
    tail = b".text." + b"A" * (4 << 20)
    names = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, size, len(tail), 0, 0, 0, 0)
    kinds = {"long names": 1, "overlapping tables": 0x8000000F, "overlapping images": 0x80000007}
    one = struct.pack("<IIQQQQIIQQ", 0, kinds[kind], 0, 0, 0, size, 1, 0, 0, 48)
    path = tmp_path / "core"
    path.write_bytes(_many([one] * count + [names], tail))
    tracemalloc.start()
    began = time.process_time()
    core = read_gpu_core(path)
    assert core.exceptions == () and core.problem
    assert time.process_time() - began < 20  # traced allocations are several times slower
    assert tracemalloc.get_traced_memory()[1] < 256 << 20
    tracemalloc.stop()


def test_sparse_dump_is_read_where_it_is_needed(tmp_path: Path) -> None:
    """A file of 64 GiB that contains only its tables."""
    path = faulting(1).write(tmp_path / "core")
    os.truncate(path, 64 << 30)
    began = time.process_time()
    assert len(read_gpu_core(path).exceptions) == 1
    assert time.process_time() - began < 5
