"""How a fault address was computed where the instruction does not show it: pointer into a live storage + scale * index.

Compilers fold the sum into one register before the access. The parts are still there: the pointer in another register
or on the stack, the index there too, or in the memory of the tensor it was read from. An equation of 64 bits that holds
exactly is no accident, with the exceptions that the limits below keep out. Where both are gone, the tensors to which
the stack refers may give them: the start of one, and the extremes of another that holds integers, counted in rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice, product

import msgspec

from pytracer.analyze.address_space.address_info import Formation
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.referrers import data_registers, stack_words
from pytracer.analyze.platform.addresses import exists
from pytracer.analyze.platform.instruction import signed, signed32
from pytracer.decode.types.snapshot import Argument, Crash, Storage

_SCALES = (1, 2, 4, 8, 16)
_MODULUS = 1 << 64
# Small sums of small numbers are found everywhere. Below the first limit nothing counts; below the second the pointer
# must be the first byte of the storage; above the third the pointer may have moved on inside the storage. A number of
# bytes that is no element of a tensor counts above the last one, from the first byte of the storage.
_LEAST_BYTES = 1 << 12
_LEAST_ANYWHERE_BYTES = 1 << 20
_LEAST_WITHIN_BYTES = 1 << 32
_LEAST_UNSCALED_BYTES = 1 << 32
_NO_DISTANCE_BYTES = 1 << 48  # of two addresses of a process
# Rows of a tensor of the operator: an element of its index tensor counts anywhere, another number above the first
# limit, and an address within a row where rows are no larger than the second.
_LEAST_ROWS_BYTES, _LARGEST_ROW_BYTES = 1 << 20, 1 << 16
_LEAST_ROW_BYTES = 16
_LEAST_ROW_NUMBER = 64  # of two storages; smaller numbers are in registers by chance
_NEAR_ADDRESS_BYTES = 1 << 16
# What a handler keeps is less: 1 KiB of the stack, 128 bytes for each register. A hostile recording may have more.
_MOST_STACK_WORDS, _MOST_BLOCKS, _MOST_BLOCK_BYTES = 512, 64, 1024


class _Value(msgspec.Struct, frozen=True):
    """A number that may have been the index."""

    number: int
    at: str | None
    storage: Storage | None


def find_formation(space: AddressSpace, crash: Crash, addr: int) -> Formation | None:
    """The one way in which the address follows from a live storage; None when there is none, or several.

    Args:
        space: the process.
        crash: its registers, the top of its stack, and the memory near registers.
        addr: the fault address, which lies in no live storage; may be non-canonical.
    """
    pointers = dict(_pointers(space, crash, addr))
    values = _values(space, crash, addr)
    found = (
        list(_exact(pointers, values, addr))
        or list(_at_a_row(space, crash, pointers, values, addr))
        or list(_within(space, pointers, values, addr))
        or list(_by_rows(space, crash, addr))
        or list(_beside_another(pointers, values, addr))
    )
    best = {(item.storage, item.index): item for item in reversed(found)}
    return next(iter(best.values())) if len(best) == 1 else None


def _pointers(space: AddressSpace, crash: Crash, addr: int) -> Iterator[tuple[int, tuple[str, Storage]]]:
    """What points into live storages: address -> where it was, and the storage. Registers win over the stack."""
    for name, value in reversed(_held(crash)):
        storage = space.live_around(value) if value != addr else None
        if storage is not None:
            yield value, (name, storage)


def _held(crash: Crash) -> list[tuple[str, int]]:
    """Registers, and words of the stack."""
    return [*data_registers(crash).items(), *islice(stack_words(crash), _MOST_STACK_WORDS)]


def _values(space: AddressSpace, crash: Crash, addr: int) -> list[_Value]:
    """Numbers of registers, of the stack, and of the memory of live storages; those in both places first."""
    in_memory = dict(_words_of_storages(space, crash))
    held: dict[int, str] = {}
    for name, value in _held(crash):
        for number in {signed(value), signed32(value)}:
            held.setdefault(number, name)
    numbers = [*(number for number in held if number in in_memory), *held, *in_memory]
    found = {number: _Value(number, held.get(number), in_memory.get(number)) for number in numbers}
    mapped = [(item.start, item.end) for item in crash.mappings]
    memory = sorted([*mapped, *((item.start, item.end) for item in crash.images)])
    return [item for item in found.values() if not _is_address(space, memory, item.number, addr)]


def _words_of_storages(space: AddressSpace, crash: Crash) -> Iterator[tuple[int, Storage]]:
    """The integers of 8 and of 4 bytes in the memory that was kept, where it belongs to live storages."""
    for block in crash.memory[:_MOST_BLOCKS]:
        for nbytes in (8, 4):
            first, end = -block.addr % nbytes, min(len(block.content), _MOST_BLOCK_BYTES)
            for offset in range(first, end - nbytes + 1, nbytes):
                storage = space.live_around(block.addr + offset)
                if storage is not None:
                    content = block.content[offset : offset + nbytes]
                    yield int.from_bytes(content, "little", signed=True), storage


def _is_address(space: AddressSpace, memory: Sequence[tuple[int, int]], number: int, addr: int) -> bool:
    """Whether the number is itself a pointer: the difference of two pointers fits any address."""
    value = number % _MODULUS
    if abs(value - addr) < _NEAR_ADDRESS_BYTES or space.live_around(value) is not None:
        return True
    below = bisect_right(memory, (value, _MODULUS)) - 1
    return below >= 0 and memory[below][0] <= value < memory[below][1]


def _exact(pointers: dict[int, tuple[str, Storage]], values: list[_Value], addr: int) -> Iterator[Formation]:
    """pointer + scale * value is the address."""
    products: dict[int, list[tuple[int, _Value]]] = defaultdict(list)
    for item, scale in product(values, _SCALES):
        products[(scale * item.number) % _MODULUS].append((scale, item))
    for pointer, (name, storage) in pointers.items():
        fitting = products.get((addr - pointer) % _MODULUS, ())
        telling = (pair for pair in fitting if _is_telling(*pair, pointer, storage))
        best = next(telling, None)
        if best is None:
            continue
        (scale, item), within = best, pointer - storage.base
        if not 0 <= within + scale * item.number < storage.nbytes:
            yield Formation(storage, name, item.number, scale, within, item.at, item.storage, True)


def _is_telling(scale: int, item: _Value, pointer: int, storage: Storage) -> bool:
    """Whether such a sum is no accident; an unscaled number may be the difference of two pointers."""
    nbytes = abs(scale * item.number)
    if nbytes < _LEAST_BYTES:
        return False
    if scale == 1 and item.storage is None:
        return nbytes >= _LEAST_UNSCALED_BYTES and pointer == storage.base
    return nbytes >= _LEAST_ANYWHERE_BYTES or pointer == storage.base


def _within(
    space: AddressSpace, pointers: dict[int, tuple[str, Storage]], values: list[_Value], addr: int
) -> Iterator[Formation]:
    """The pointer had moved on, to a row or a worker's part: some place in a storage + scale * value. Or it was
    overwritten by the sum, which began at the first byte of a storage; anywhere in it, where a register's number cannot
    be the distance of two addresses. memmove() has that distance in a register, beside the pointer.
    """
    names = {storage: name for name, storage in reversed(list(pointers.values()))}
    impossible = not exists(space.snapshot.arch, addr)
    for item in values:
        for scale in _SCALES:
            if abs(scale * item.number) < _LEAST_WITHIN_BYTES:
                continue
            start = (addr - scale * item.number) % _MODULUS
            storage = space.live_around(start)
            if storage is None:
                continue
            scaled = scale != 1 or item.storage is not None
            no_distance = impossible or abs(scale * item.number) >= _NO_DISTANCE_BYTES
            alone = no_distance and _in_register(item.at) and not _in_register(pointers.get(start, (None,))[0])
            if start == storage.base or alone or (storage in names and scaled):
                yield Formation(
                    storage, names.get(storage), item.number, scale, start - storage.base, item.at, item.storage, False
                )


def _in_register(name: str | None) -> bool:
    """Not on the stack, nor in memory."""
    return name is not None and not name.startswith("stack")


def _at_a_row(
    space: AddressSpace, crash: Crash, pointers: dict[int, tuple[str, Storage]], values: list[_Value], addr: int
) -> Iterator[Formation]:
    """The first element of a tensor of the operator + bytes of a row * a number that was at hand."""
    at_hand: dict[int, list[_Value]] = defaultdict(list)
    for item in values:
        at_hand[item.number].append(item)
    for _, storage, start, row_sizes in _tensors_of_operator(space, crash):
        for row_bytes in row_sizes:
            number, rest = divmod(signed(addr - start), row_bytes)
            if rest or row_bytes < _LEAST_ROW_BYTES or 0 <= addr - storage.base < storage.nbytes:
                continue
            for item in at_hand.get(number, ()):
                far = abs(number * row_bytes)
                if far >= (_LEAST_BYTES if item.storage not in (None, storage) else _LEAST_ROWS_BYTES):
                    name = pointers.get(start, (None, storage))[0]
                    yield Formation(
                        storage, name, number, row_bytes, start - storage.base, item.at, item.storage, name is not None
                    )
                    break


def _by_rows(space: AddressSpace, crash: Crash, addr: int) -> Iterator[Formation]:
    """The first row of a tensor of the operator + row size * the smallest or largest element of an index tensor."""
    indices = [item for item in crash.arguments if item.is_integer and item.elements and item.base]
    for data, storage, start, row_sizes in _tensors_of_operator(space, crash):
        for index in indices:
            for number, row_bytes in product({index.minimum, index.maximum}, row_sizes):
                if index.base == data.base or number is None or abs(number * row_bytes) < _LEAST_ROWS_BYTES:
                    continue
                within = (addr - number * row_bytes - start) % _MODULUS
                if within < min(row_bytes, storage.nbytes) and (within == 0 or row_bytes <= _LARGEST_ROW_BYTES):
                    yield Formation(
                        storage,
                        None,
                        number,
                        row_bytes,
                        start - storage.base + within,
                        None,
                        space.live_around(index.base),
                        within == 0,
                    )


def _beside_another(pointers: dict[int, tuple[str, Storage]], values: list[_Value], addr: int) -> Iterator[Formation]:
    """The first byte of a storage + as many bytes as a pointer was inside of another one: the same row of both."""
    offsets = {pointer - storage.base: storage for pointer, (_, storage) in pointers.items()}
    for pointer, (name, storage) in pointers.items():
        distance = addr - pointer
        twin = offsets.get(distance)
        if pointer != storage.base or twin is None or twin == storage or distance < _LEAST_ROWS_BYTES:
            continue
        rows = {
            item.number: item.at
            for item in values
            if item.at is not None
            and _in_register(item.at)
            and item.number >= _LEAST_ROW_NUMBER
            and distance % item.number == 0
            and distance // item.number >= _LEAST_ROW_BYTES
            and storage.nbytes % (distance // item.number) == twin.nbytes % (distance // item.number) == 0
        }
        if len(rows) == 1:
            ((row, at),) = rows.items()
            yield Formation(storage, name, row, distance // row, 0, at, None, True, twin)
        elif rows:  # which of them is not known
            yield Formation(storage, name, distance, 1, 0, None, None, True, twin)


def _tensors_of_operator(space: AddressSpace, crash: Crash) -> Iterator[tuple[Argument, Storage, int, list[int]]]:
    """Each tensor with the live storage that it begins in, and where its first element is.

    Behind these the bytes from one row to the next, in each dimension but the last, which has elements.
    """
    for data in crash.arguments:
        element, start = data.element_bytes, data.data
        storage = space.live_around(data.base) if start is not None else None
        if storage is None or start is None or element is None or data.dimensions > len(data.sizes):
            continue
        yield data, storage, start, sorted({step * element for step in data.steps if step > 1})
