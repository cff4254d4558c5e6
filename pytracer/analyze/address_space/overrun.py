"""An access that ran on: from a storage through everything beside it, to the end of the memory that it may use.

Upwards or downwards. A loop or a memset with a wrong length faults far from its start, at the first inaccessible page,
whatever owns that page. Its origin is still in a register: the first byte of the storage where it began, and between
that and the fault there is no gap in the memory map. A string instruction has the remaining length, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.address_space.address_info import Overrun, Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.referrers import STACK_POINTERS, STATE_REGISTERS, stack_words
from pytracer.analyze.platform.instruction import Instruction
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.decode.types.snapshot import Crash, Holder, Mapping, PythonFrame, Storage

PAGE_BYTES = 4096
_ARENA_BYTES = 64 << 20  # glibc, malloc/arena.c: HEAP_MAX_SIZE
_HEADER_BYTES = 16  # of a block of malloc(), before its first byte
_LARGEST_ACCESS_BYTES = 64
_LEAST_STRIDE_BYTES, _MOST_STRIDE_BYTES, _LEAST_STEPS = 16, PAGE_BYTES, 64  # fewer steps may be an accident
_LEAST_WRITTEN, _FILLED_WITH = 16, (0, 1, -1, -100)  # -100: torch's ignore_index
_HALF, _SLACK_BYTES = 1 << 63, 256  # a compiler may count from a few elements before
_RECORDING = ".blackbox"
_STRING = Pattern(r"^rep\w* (stos|movs|lods|scas|cmps)([bwdq])")
_UNIT_BYTES = {"b": 1, "w": 2, "d": 4, "q": 8}
_LENGTH, _RETURNED = "rcx", "rax"
_MAKES_POINTERS = Pattern(r"convert_indices_from_coo|coo_to_\w*cs[rc]")
_COPY = Pattern(r"_*(memcpy|memmove|memset)(_\w+)?$")  # of glibc on x86-64


def find_overrun(
    space: AddressSpace, crash: Crash, addr: int, access: str | None, instruction: Instruction | None
) -> Overrun | None:
    """The start of an access that ran into inaccessible memory; None without evidence of one.

    Args:
        space: the process.
        crash: its registers and memory map.
        addr: the fault address.
        access: "read", "write", or None when not known.
        instruction: the faulting one, if a disassembler is installed.
    """
    if access == "execute":
        return None
    return (
        _by_copy(space, crash, addr, access)
        or _by_steps(space, crash, addr, access)
        or _by_beginnings(space, crash, addr, access, instruction)
    )


def _by_copy(space: AddressSpace, crash: Crash, addr: int, access: str | None) -> Overrun | None:
    """memcpy() and the like keep in a register what they return: where they began to write. They go by several pages
    at once, so that the first byte that is refused may be any one of a page.
    """
    function = next((item.function for item in crash.native_stack), None)
    value = crash.registers.get(_RETURNED)
    if access != "write" or value is None or not _COPY.match(function or ""):
        return None
    storage, run = space.live_around(value), run_beside(crash.mappings, addr, access, reach=PAGE_BYTES)
    if storage is None or run is None or run.downwards or not run.low <= value <= addr:
        return None
    if storage.base + storage.nbytes > addr:
        return None
    return _from_first_byte(crash, run, addr, storage, _RETURNED)


def _from_first_byte(crash: Crash, run: Run, addr: int, storage: Storage, register: str) -> Overrun:
    """From the first byte of a storage upwards to the fault; as if nothing else lay on the way."""
    return Overrun(
        start=storage.base,
        span_bytes=addr - storage.base,
        downwards=False,
        register=register,
        storage=storage,
        holders=_held(crash, storage.base),
        left_bytes=None,
        through_recording=run.through_recording,
        sole=True,
        majority=False,
    )


def _held(crash: Crash, base: int) -> tuple[Holder, ...]:
    return tuple(item for item in crash.holders if item.base == base)


def _by_beginnings(
    space: AddressSpace, crash: Crash, addr: int, access: str | None, instruction: Instruction | None
) -> Overrun | None:
    """By the registers, or else the words of the stack, that still point at where it began."""
    run = run_beside(crash.mappings, addr, access)
    if run is None:
        return None
    found = list(_beginnings(space, crash, run, addr))
    # The loop's own registers point at the storage more than once: at its first byte, and where it began to run.
    counts = Counter(start for start, _, _ in found)
    (start, most), (_, second) = [*counts.most_common(2), (0, 0), (0, 0)][:2]
    written = _beginning_of_pointers(crash, counts, addr) if most == second and access == "write" else None
    if most == second and written is None:  # nothing, or no clear maximum
        return None
    start = written if written is not None else start
    register, storage = next((name, storage) for at, name, storage in found if at == start)
    if _counts_from_elsewhere(space, run, instruction, storage):
        return None
    closer = _closer_of_line(space, crash, run, addr, storage) if access == "write" and storage is not None else None
    if closer is not None and not _is_counted_from(space, instruction, storage):
        majority = _by_a_number(crash, instruction, closer) and not _by_a_number(crash, instruction, storage)
        found_by_line = _from_first_byte(crash, run, addr, closer, register)
        return structs.replace(found_by_line, sole=False, majority=majority, of_line=True)
    return Overrun(
        start=start,
        span_bytes=abs(addr - start),
        downwards=run.downwards,
        register=register,
        storage=storage,
        holders=_held(crash, start),
        left_bytes=left_bytes(instruction, crash),
        through_recording=run.through_recording,
        sole=len(counts) == 1,
        majority=most >= 2 or written is not None,
    )


def _beginning_of_pointers(crash: Crash, counts: Counter[int], addr: int) -> int | None:
    """Of a kernel that makes row pointers of indices: which beginning is that of the pointers, which it writes.

    It writes the number of a row up to the next one's index. Elsewhere, labels and padding would look the same.
    """
    inner = crash.native_stack[0].function if crash.native_stack else None
    if len(counts) < 2 or not _MAKES_POINTERS.search(inner or ""):
        return None
    values = {item.base: (item.minimum, item.maximum) for item in crash.arguments if item.elements >= _LEAST_WRITTEN}
    apart = _apart_from_indices(crash, counts, values, addr)
    return apart if apart is not None else _before_what_was_written(counts, values, addr)


_Ends = dict[int, tuple[int | None, int | None]]


def _apart_from_indices(crash: Crash, counts: Counter[int], values: _Ends, addr: int) -> int | None:
    """The one beginning that is not of the indices, whose largest is in a register and leads on to the address."""
    span, held = addr - min(counts), set(crash.registers.values())
    indices = {base for base, (_, most) in values.items() if most is not None and most > span and most in held}
    left = [start for start in counts if start not in indices]
    return left[0] if indices and len(left) == 1 else None


def _before_what_was_written(counts: Counter[int], values: _Ends, addr: int) -> int | None:
    """The first, where the write went over all others: they hold one number only, each the same.

    It is none that a tensor is filled with before it is used.
    """
    first, *others = sorted(counts)
    over = {values.get(start, (None, None)) for start in others}
    over |= {ends for base, ends in values.items() if first < base < addr and ends[0] is not None}
    low, high = over.pop() if len(over) == 1 else (None, None)
    return first if low is not None and low == high and low not in _FILLED_WITH else None


def _closer_of_line(space: AddressSpace, crash: Crash, run: Run, addr: int, storage: Storage) -> Storage | None:
    """The tensor of the program's innermost line that ends last before a write, behind the one that a register shows.

    What is read is in registers, too: a copy runs through its source and past its target at once.
    """
    frame = _program_frame(crash)
    if frame is None or run.downwards:
        return None
    held = {item.base for item in crash.holders if item.kind == "local" and item.frame == frame and item.own}
    if storage.base not in held:
        return None
    live = (item for base in held if base and (item := space.live_around(base)) is not None)
    behind = [item for item in live if storage.base + storage.nbytes <= item.base and item.base + item.nbytes <= addr]
    return max((item for item in behind if item.base >= run.low), key=lambda item: item.base, default=None)


def _program_frame(crash: Crash) -> PythonFrame | None:
    """The innermost of the program's own."""
    return next((item for item in crash.python_stack if not is_library_file(item.file)), None)


def _is_counted_from(space: AddressSpace, instruction: Instruction | None, storage: Storage | None) -> bool:
    """Whether the instruction itself counts from that storage."""
    parts = (instruction.base_value, instruction.index_value) if instruction is not None else ()
    return any(value is not None and space.live_around(value) == storage for value in parts)


def _counts_from_elsewhere(
    space: AddressSpace, run: Run, instruction: Instruction | None, storage: Storage | None
) -> bool:
    """Whether the instruction counts upwards from memory of the same run in front of the storage, which is no tensor's.

    Then the loop walks another array, such as one of NumPy or of C, and only passed through the tensor on its way.
    """
    if instruction is None or storage is None or run.downwards:
        return False
    base, index = instruction.base_value, instruction.index_value
    if base is None or index is None or not 0 < index < _HALF or not run.low <= base < storage.base - _SLACK_BYTES:
        return False
    return space.live_around(base) is None


def _by_a_number(crash: Crash, instruction: Instruction | None, storage: Storage | None) -> bool:
    """Whether what the instruction counts from is a multiple of a number of the line behind the first byte."""
    base = instruction.base_value if instruction is not None else None
    if base is None or storage is None or base <= storage.base:
        return False
    frame = _program_frame(crash)
    numbers = {item.value for item in crash.numbers if item.frame == frame and item.value >= _LEAST_STEPS}
    return any((base - storage.base) % number == 0 for number in numbers)


def _by_steps(space: AddressSpace, crash: Crash, addr: int, access: str | None) -> Overrun | None:
    """By an equation: address = the first byte of a storage + stride * count, all three in registers.

    A loop over rows of a fixed size stops up to one of them behind the edge. Its counter may have been raised already,
    or be raised next.
    """
    held = _registers(crash)
    starts = [
        (name, storage)
        for name, value in held
        if (storage := space.live_around(value)) is not None
        and storage.base == value
        and storage.base + storage.nbytes <= addr
    ]
    numbers = {value for _, value in held}
    found: dict[int, Overrun] = {}
    for (name, storage), stride in product(starts, numbers):
        distance = addr - storage.base
        if not _LEAST_STRIDE_BYTES <= stride <= _MOST_STRIDE_BYTES or distance % stride:
            continue
        count = distance // stride
        if count < _LEAST_STEPS or not numbers & {count - 1, count, count + 1}:
            continue
        run = run_beside(crash.mappings, addr, access, reach=stride)
        if run is None or run.downwards or not run.low <= storage.base:
            continue
        found[storage.base] = structs.replace(_from_first_byte(crash, run, addr, storage, name), stride_bytes=stride)
    return next(iter(found.values())) if len(found) == 1 else None


def oversized_bytes(crash: Crash, place: Place) -> int | None:
    """How many bytes there are of a storage, at most, of which the beginning is there and the address is not.

    None where nothing is there, where all is there but for pages in its middle (somebody protected them), and for
    memory of torch's own allocators, which is as large as the storage.
    """
    storage = place.storage
    if storage is None or not storage.base <= place.addr < storage.base + storage.nbytes:
        return None
    usable = [item for item in crash.mappings if "r" in item.permissions]
    end = readable_end(crash, storage.base)
    last = storage.base + storage.nbytes - 1
    if not storage.base < end <= place.addr or (
        place.mapping is not None and any(i.start <= last < i.end for i in usable)
    ):
        return None
    if not begins_there(crash, storage):
        return None
    in_heap = any(item.path == "[heap]" and item.start <= storage.base < item.end for item in usable)
    return end - storage.base if in_heap or is_borrowed(storage) else None


def readable_end(crash: Crash, addr: int) -> int:
    """Up to where memory can be read without a gap, from an address on; that itself where it cannot be read."""
    for item in sorted((item for item in crash.mappings if "r" in item.permissions), key=lambda item: item.start):
        if item.start <= addr < item.end:
            addr = item.end
    return addr


def there_of_block(crash: Crash, addr: int) -> int:
    """How many bytes can be read from the first one of a block of malloc() on; 0 where others took its memory."""
    taken = any(_is_new_arena(crash, at) for at in (addr, addr - _HEADER_BYTES))
    return readable_end(crash, addr) - addr if not taken else 0


def begins_there(crash: Crash, storage: Storage) -> bool:
    """Whether the first byte of a storage can be read, and is not that of a heap which took the place of its memory."""
    there = any("r" in item.permissions and item.start <= storage.base < item.end for item in crash.mappings)
    return there and not _is_new_arena(crash, storage.base)


def _is_new_arena(crash: Crash, addr: int) -> bool:
    """Whether the heap of a thread begins just there: glibc puts them at multiples of their size, most of it reserved.

    What begins there is the heap's own header, never a block.
    """
    reserved = {item.end for item in crash.mappings if item.permissions.startswith("---")}
    return addr % _ARENA_BYTES == 0 and addr + _ARENA_BYTES in reserved


class Run(msgspec.Struct, frozen=True):
    """Accessible memory without a gap, `low` to `high`, that ends at the page of an address, or begins behind it."""

    low: int
    high: int
    downwards: bool
    through_recording: bool


def run_beside(
    mappings: Sequence[Mapping], addr: int, access: str | None, reach: int = _LARGEST_ACCESS_BYTES
) -> Run | None:
    """The memory that an access ran through before it was refused at `addr`: upwards within the first `reach` bytes of
    a page, downwards at the last ones; None when the page beside may not be accessed.
    """
    needed = "w" if access == "write" else "r"
    usable = [item for item in mappings if needed in item.permissions]
    if any(item.start <= addr < item.end for item in usable):
        return None  # refused for another reason
    page = addr - addr % PAGE_BYTES
    if addr % PAGE_BYTES < reach:
        by_end, low, through = {item.end: item for item in usable}, page, False
        while (item := by_end.get(low)) is not None:
            low, through = item.start, through or item.path.endswith(_RECORDING)
        return Run(low, page, False, through) if low < page else None
    if addr % PAGE_BYTES >= PAGE_BYTES - _LARGEST_ACCESS_BYTES:
        by_start, high, through = {item.start: item for item in usable}, page + PAGE_BYTES, False
        while (item := by_start.get(high)) is not None:
            high, through = item.end, through or item.path.endswith(_RECORDING)
        return Run(page + PAGE_BYTES, high, True, through) if high > page + PAGE_BYTES else None
    return None


def _registers(crash: Crash) -> list[tuple[str, int]]:
    return [(n, v) for n, v in crash.registers.items() if n not in STATE_REGISTERS and n not in STACK_POINTERS]


def _beginnings(space: AddressSpace, crash: Crash, run: Run, addr: int) -> Iterator[tuple[int, str, Storage | None]]:
    """Registers that point into a storage of the run which the fault lies behind: its first byte, the register, and
    the storage, if it is still recorded. Without any, words of the stack that are such a first byte.
    """
    held = {item.base for item in crash.holders if item.base}
    found = [hit for name, value in _registers(crash) for hit in _beginning(space, run, addr, held, name, value)]
    if found:
        yield from found
        return
    for name, value in stack_words(crash):
        yield from (hit for hit in _beginning(space, run, addr, held, name, value) if hit[0] == value)


def _beginning(
    space: AddressSpace, run: Run, addr: int, held: set[int], name: str, value: int
) -> Iterator[tuple[int, str, Storage | None]]:
    if not run.low <= value < run.high:
        return
    storage = space.live_around(value)
    if storage is None and value in held:
        yield value, name, None
    elif storage is not None and (storage.base > addr if run.downwards else storage.base + storage.nbytes <= addr):
        yield storage.base, name, storage


def left_bytes(instruction: Instruction | None, crash: Crash) -> int | None:
    """What `rep stos` and its like had left to do."""
    match = _STRING.match(instruction.text) if instruction is not None else None
    count = crash.registers.get(_LENGTH)
    return count * _UNIT_BYTES[match[2]] if match is not None and count is not None else None
