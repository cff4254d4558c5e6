"""A fault address computed from a wrong index, or reached by running past the end, is traced to its start."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.timeline.clock import RunClock
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.synth import Box

BASE, INDICES = 0x5581_0000_0000, 0x5581_0010_0000
HEAP = (0x5580_FFFF_0000, 0x5581_0020_0000, "rw-p", 0, "[heap]")
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
STORE = bytes.fromhex("0f1101")  # movups xmmword ptr [rcx], xmm0
FILL = bytes.fromhex("f3aa")  # rep stosb byte ptr [rdi], al


def place(run: Path, box: Box, addr: int, **crash: Any) -> Place:
    """The analyzed address of the fault."""
    crash.setdefault("mappings", [HEAP])
    job = s.load(run, box.at(500).crash(addr=addr, native=s.NATIVE[:1], **crash))
    found = build_view(0, job.processes[0], RunClock(job)).place
    assert found is not None
    return found


def int64(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


@needs_capstone
def test_index_in_a_register_and_its_storage_are_found_behind_the_sum(tmp_path: Path) -> None:
    """r10 + 4 * rcx, folded into rax: the sum is not canonical, so the kernel does not report it."""
    box, index = Box(pid=101).alloc(BASE, 4), -4702111234474983746
    addr = (BASE + 4 * index) % (1 << 64)
    registers = {"rdx": addr, "r10": BASE, "rcx": index % (1 << 64), "trapno": 13}
    found = place(tmp_path, box, 0, code=128, registers=registers, code_bytes=LOAD)
    assert found.formation is not None
    assert (found.kind, found.addr, found.formation.index, found.formation.room) == ("before-storage", addr, index, 1)
    assert (found.formation.pointer, found.formation.index_at, found.found) == ("r10", "rcx", "computed")


@needs_capstone
def test_index_in_the_memory_of_another_tensor_is_named_with_it(tmp_path: Path) -> None:
    """A worker's slice of the storage, plus 4 * an element of an index tensor that a register points into."""
    box = Box(pid=101).alloc(BASE, 16384).alloc(INDICES, 2048)
    index, slice_bytes = -(1 << 40), 8192
    addr = BASE + slice_bytes + 4 * index
    memory = [("rcx", INDICES + 1024, INDICES + 1024, int64(7, index, 9))]
    registers = {"rdx": addr, "r13": BASE, "rcx": INDICES + 1024}
    found = place(tmp_path, box, addr, registers=registers, code_bytes=LOAD, memory=memory)
    assert found.formation is not None and found.formation.index_storage is not None
    assert (found.formation.index, found.formation.within_bytes) == (index, slice_bytes)
    assert (found.formation.storage.base, found.formation.index_storage.base) == (BASE, INDICES)
    assert not found.formation.exact


@needs_capstone
def test_pointer_of_another_object_is_no_sum(tmp_path: Path) -> None:
    """A wild pointer beside storages, with numbers in the registers that do not add up to it."""
    box = Box(pid=101).alloc(BASE, 4096)
    registers = {"rdx": 0x1234_5678_9000, "r13": BASE, "rcx": 12345, "rax": 0x40_0000}
    found = place(tmp_path, box, 0x1234_5678_9000, registers=registers, code_bytes=LOAD)
    assert (found.kind, found.formation, found.storage) == ("unmapped", None, None)


@needs_capstone
def test_difference_of_two_pointers_is_no_index(tmp_path: Path) -> None:
    """Unscaled, an index fits any other pointer: only an element of a tensor may be counted in bytes."""
    box, far = Box(pid=101).alloc(BASE, 4096), 0x4000_0000
    registers = {"rdx": BASE + far, "r13": BASE, "rcx": far}
    found = place(tmp_path, box, BASE + far, registers=registers, code_bytes=LOAD)
    assert (found.kind, found.formation) == ("unmapped", None)


NO_ADDRESS, STACK = 0x8483_9FF2_102B, 0x7FFD_0000_0100


@needs_capstone
@pytest.mark.parametrize(
    ("base", "registers", "known"),
    [
        (BASE, {}, True),  # the sum overwrote the pointer
        (BASE, {"rsi": BASE + 4096}, False),  # memmove() to a wild pointer: it has the distance of both
        (BASE, {"rcx": 0, "memory": 1}, False),  # the number is on the stack alone
    ],
)
def test_byte_index_that_no_distance_can_be_leads_back_to_the_storage_that_its_pointer_was_inside_of(
    base: int, registers: dict[str, int], known: bool, tmp_path: Path
) -> None:
    """The sum is no possible address, so that the number is not the distance of two of them."""
    box, number = Box(pid=101).alloc(base, 9216), NO_ADDRESS - (base + 4096)
    on_stack = "memory" in registers
    held = {"rdx": NO_ADDRESS, "rcx": number, "rsp": STACK, "trapno": 13, **registers}
    held.pop("memory", None)
    memory = [("rsp", STACK, STACK, int64(7, number if on_stack else 8))]
    found = place(tmp_path, box, 0, code=128, registers=held, code_bytes=LOAD, memory=memory)
    assert (found.formation is not None) == known
    if found.formation is not None:
        assert (found.formation.index, found.formation.within_bytes) == (number, 4096)


@needs_capstone
def test_two_storages_that_fit_decide_nothing(tmp_path: Path) -> None:
    """Both sums are the address: then no storage is named."""
    box = Box(pid=101).alloc(BASE, 64).alloc(INDICES, 64)
    addr = BASE + 8 * 0x1_0000_0000
    other = (addr - INDICES) // 4
    registers = {"rdx": addr, "r13": BASE, "r14": INDICES, "rcx": 0x1_0000_0000, "rbx": other}
    found = place(tmp_path, box, addr, registers=registers, code_bytes=LOAD)
    assert (found.formation, found.storage) == (None, None)


@needs_capstone
def test_write_that_ran_to_the_end_of_the_heap_is_seen_from_where_it_began(tmp_path: Path) -> None:
    """std::fill with a negative count: the loop's other registers still point to the storage."""
    box = Box(pid=101).alloc(BASE, 64).alloc(BASE + 512, 24)
    registers = {"rcx": HEAP[1], "r9": BASE, "rsi": BASE + 16, "r8": BASE + 512}
    found = place(tmp_path, box, HEAP[1], registers=registers, code_bytes=STORE, error_code=6)
    assert found.overrun is not None and found.storage is not None
    assert (found.kind, found.storage.base, found.overrun.span_bytes) == ("past-storage", BASE, HEAP[1] - BASE)
    assert not found.overrun.sole


@needs_capstone
def test_overrun_into_a_library_names_the_origin_and_not_the_victim(tmp_path: Path) -> None:
    """memset() wrote through all writable memory, up to a library: rdx is its first address."""
    library = (HEAP[1], HEAP[1] + 0x1000, "r--p", 0, "/usr/lib/libother.so")
    code = (HEAP[1] + 0x1000, HEAP[1] + 0x2000, "r-xp", 0x1000, "/usr/lib/libother.so")
    registers = {"rdi": HEAP[1], "rdx": BASE, "rcx": 0x1000}
    box = Box(pid=101).alloc(BASE, 4096)
    mappings = [HEAP, library, code]
    found = place(tmp_path, box, HEAP[1], code=2, registers=registers, code_bytes=FILL, error_code=7, mappings=mappings)
    assert found.overrun is not None and found.storage is not None
    assert (found.kind, found.storage.base, found.overrun.left_bytes) == ("past-storage", BASE, 0x1000)


@needs_capstone
@pytest.mark.parametrize("room", [7 << 20, 4096])
def test_overrun_that_ends_at_a_guard_page_is_one_unless_the_stack_is_full(room: int, tmp_path: Path) -> None:
    """The stack of the thread that writes lies right above the tensor; near its end it may have overflowed itself."""
    low = HEAP[1] + 4096
    guard, stack = (HEAP[1], low, "---p", 0, ""), (low, low + (8 << 20), "rw-p", 0, "")
    registers = {"rdi": HEAP[1], "rdx": BASE, "rcx": 0x1000, "rsp": low + room}
    how = {"registers": registers, "code_bytes": FILL, "error_code": 7, "stack": stack[:2]}
    box = Box(pid=101).alloc(BASE, 4096)
    found = place(tmp_path, box, HEAP[1], code=2, mappings=[HEAP, guard, stack], **how)
    assert found.kind == ("past-storage" if room > 4096 else "stack-guard")


@needs_capstone
def test_write_to_a_library_without_a_way_to_it_stays_one(tmp_path: Path) -> None:
    """There is a gap in the memory map between the storage and the library."""
    library = (HEAP[1] + 0x1000, HEAP[1] + 0x2000, "r-xp", 0, "/usr/lib/libother.so")
    registers = {"rdi": HEAP[1] + 0x1000, "rdx": BASE, "rcx": 0x1000}
    box = Box(pid=101).alloc(BASE, 4096)
    found = place(
        tmp_path,
        box,
        HEAP[1] + 0x1000,
        code=2,
        registers=registers,
        code_bytes=FILL,
        error_code=7,
        mappings=[HEAP, library],
    )
    assert (found.kind, found.overrun) == ("image", None)


@needs_capstone
def test_fault_in_the_middle_of_a_page_did_not_run_there(tmp_path: Path) -> None:
    """An access that runs past the end faults at the first byte of a page."""
    box = Box(pid=101).alloc(BASE, 64)
    registers = {"rcx": HEAP[1] + 0x800, "r9": BASE}
    found = place(tmp_path, box, HEAP[1] + 0x800, registers=registers, code_bytes=STORE, error_code=6)
    assert found.overrun is None
