"""An access that ran on: from a storage through everything beside it, to the end of the memory that it may use.

A loop or a memset with a wrong length faults far from its start, at the first inaccessible page, whatever owns that
page. Its origin is still in a register: the first byte of the storage where it began, and between that and the fault
there is no gap in the memory map. A string instruction has the remaining length, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from pytracer.analyze.address_space.address_info import Overrun
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.referrers import STACK_POINTERS, STATE_REGISTERS
from pytracer.analyze.platform.instruction import Instruction
from pytracer.decode.types.snapshot import Crash, Mapping, Storage

PAGE_BYTES = 4096
_LARGEST_ACCESS_BYTES = 64
_RECORDING = ".blackbox"
_STRING = re.compile(r"^rep\w* (stos|movs|lods|scas|cmps)([bwdq])")
_UNIT_BYTES = {"b": 1, "w": 2, "d": 4, "q": 8}
_LENGTH = "rcx"


def find_overrun(
    space: AddressSpace, crash: Crash, addr: int, access: str | None, instruction: Instruction | None
) -> Overrun | None:
    """The start of an access that ran upwards into inaccessible memory; None without evidence of one.

    Args:
        space: the process.
        crash: its registers and memory map.
        addr: the fault address.
        access: "read", "write", or None when not known.
        instruction: the faulting one, if a disassembler is installed.
    """
    run = _run_below(crash.mappings, addr, "w" if access == "write" else "r")
    if run is None or access == "execute":
        return None
    low, through_recording = run
    found = list(_beginnings(space, crash, low, addr))
    # The loop's own registers point at the storage more than once: at its first byte, and where it began to run.
    counts = Counter(start for start, _, _ in found)
    (start, most), (_, second) = [*counts.most_common(2), (0, 0), (0, 0)][:2]
    if most == second:  # nothing, or no clear maximum
        return None
    register, storage = next((name, storage) for at, name, storage in found if at == start)
    return Overrun(
        start=start,
        span_bytes=addr - start,
        register=register,
        storage=storage,
        holders=tuple(item for item in crash.holders if item.base == start),
        left_bytes=_left_bytes(instruction, crash),
        through_recording=through_recording,
        sole=len(counts) == 1,
        majority=most >= 2,
    )


def heap_behind(crash: Crash, storage: Storage, addr: int) -> int | None:
    """How many bytes the heap has from the beginning of a storage that reaches beyond its end; None for any other.

    The heap of brk() ends where it ends: nothing behind it was unmapped, so the storage is smaller than its tensor.
    """
    heap = next((item for item in crash.mappings if item.path == "[heap]"), None)
    if heap is None or not heap.start <= storage.base < heap.end <= addr < storage.base + storage.nbytes:
        return None
    return heap.end - storage.base


def _run_below(mappings: Sequence[Mapping], addr: int, needed: str) -> tuple[int, bool] | None:
    """Where the memory without a gap that ends right below the page of `addr` begins, and whether our recording is
    part of it; None when the page below may not be accessed, or the fault was not at the beginning of its page.
    """
    if addr % PAGE_BYTES >= _LARGEST_ACCESS_BYTES:
        return None
    by_end = {item.end: item for item in mappings if needed in item.permissions}
    low, through_recording = addr - addr % PAGE_BYTES, False
    if low not in by_end:
        return None
    while (item := by_end.get(low)) is not None:
        low = item.start
        through_recording |= item.path.endswith(_RECORDING)
    return low, through_recording


def _beginnings(space: AddressSpace, crash: Crash, low: int, addr: int) -> Iterator[tuple[int, str, Storage | None]]:
    """Registers that point into a storage of the run which ends before the fault: its first byte, the register, and
    the storage, if it is still recorded.
    """
    held = {item.base for item in crash.holders if item.base}
    for name, value in crash.registers.items():
        if name in STATE_REGISTERS or name in STACK_POINTERS or not low <= value < addr:
            continue
        storage = space.live_around(value)
        if storage is not None and storage.base + storage.nbytes <= addr:
            yield storage.base, name, storage
        elif storage is None and value in held:
            yield value, name, None


def _left_bytes(instruction: Instruction | None, crash: Crash) -> int | None:
    """What `rep stos` and its like had left to do."""
    match = _STRING.match(instruction.text) if instruction is not None else None
    count = crash.registers.get(_LENGTH)
    return count * _UNIT_BYTES[match[2]] if match is not None and count is not None else None
