"""References to an address at the crash: registers, words of the stack and of memory near registers, collectives."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.description import offset_words
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.neighbors import covers
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.tensors.comm_hooks import CalledTensor
from pytracer.analyze.tensors.journal import ByAddress, lived_at
from pytracer.decode.types.snapshot import Collective, Crash, MemoryBlock, Storage
from pytracer.report.where import PointedBy

STATE_REGISTERS = frozenset(("eflags", "csgsfs", "err", "trapno", "oldmask", "cr2", "pstate"))
STACK_POINTERS = ("rsp", "sp")
_CODE_POINTERS = ("rip", "pc")
WORD_BYTES = 8
_NEAR_BYTES = 64  # without a storage, what points so closely below the address points at the same object
_MOST = 16
_NO_MEMORY = ("null", "near-null", "non-canonical")  # small numbers are everywhere


def data_registers(crash: Crash) -> dict[str, int]:
    """Those that may hold a number or an address of data: no flags, and no pointer to code or to the stack's end."""
    left_out = (*STATE_REGISTERS, *STACK_POINTERS, *_CODE_POINTERS)
    return {name: value for name, value in crash.registers.items() if name.lower() not in left_out}


def pointed_by(space: AddressSpace, place: Place) -> list[PointedBy]:
    """What held an address inside the same storage, or close below an address that is in none."""
    crash = space.snapshot.crash
    if place.kind in _NO_MEMORY:
        return []
    found = list(_collectives(space.uses.called, place))
    if crash is not None:
        found = [*_held(crash, place), *found]
    return found[:_MOST]


def stack_words(crash: Crash) -> Iterator[tuple[str, int]]:
    """The recorded words of memory from the stack pointer on: `stack+0x18` and the value."""
    for block in crash.memory:
        if block.register in STACK_POINTERS:
            yield from ((f"stack+{at - crash.sp:#x}", word) for at, word in _words(block, max(block.addr, crash.sp)))


def memory_words(crash: Crash) -> Iterator[tuple[str, int]]:
    """The recorded words of memory near the registers, without the stack: `[rdi+0x8]` and the value; each once."""
    told: set[int] = set()  # blocks of neighbouring registers overlap
    for block in crash.memory:
        if block.register not in STACK_POINTERS:
            for addr, word in _words(block, block.addr):
                if addr not in told:
                    told.add(addr)
                    yield f"[{block.register}{addr - block.value:+#x}]", word


def is_stored(crash: Crash, addr: int) -> bool:
    """Whether a word near registers, in mapped memory that is not the stack, is that address.

    Then a variable held it. On the stack it may have been computed, or be left from an earlier call.
    """
    stack = mapping_at(crash.mappings, crash.sp)
    return any(
        word == addr
        for block in crash.memory
        if mapping_at(crash.mappings, block.addr) not in (None, stack)
        for _, word in _words(block, block.addr)
    )


def _words(block: MemoryBlock, first: int) -> Iterator[tuple[int, int]]:
    """The aligned words of a block, with their addresses."""
    for addr in range(-(-first // WORD_BYTES) * WORD_BYTES, block.addr + len(block.content), WORD_BYTES):
        word = block.content[addr - block.addr :][:WORD_BYTES]
        if len(word) == WORD_BYTES:
            yield addr, int.from_bytes(word, "little")


def _held(crash: Crash, place: Place) -> Iterator[PointedBy]:
    registers = ((name, value) for name, value in crash.registers.items() if name not in STATE_REGISTERS)
    for name, value in (*registers, *stack_words(crash), *memory_words(crash)):
        if _same(place, value):
            yield PointedBy(what=name, addr=hex_addr(value), says=_says(place, value))


def _same(place: Place, value: int) -> bool:
    storage = place.storage
    if storage is None:
        return 0 <= place.addr - value < _NEAR_BYTES
    return covers(storage, value) or value in (place.addr, storage.base + storage.nbytes)


def _says(place: Place, value: int) -> str:
    """Where it pointed, relative to the storage; relative to the address without one."""
    if value == place.addr:
        return "holds this address"
    storage = place.storage
    if storage is None:
        return f"points {place.addr - value} bytes below it"
    kind = "in-storage" if covers(storage, value) else "past-storage"
    there = Place(value, kind, storage, value - storage.base)
    return f"points {offset_words(there, 'to the start of')} the storage"


def _collectives(tensors: ByAddress[CalledTensor], place: Place) -> Iterator[PointedBy]:
    """Collectives during this allocation lifetime of the storage, the latest first."""
    storage = place.storage
    if storage is None:
        return
    for item, is_output in reversed(tensors.within(storage)):
        role, addr = ("output", item.output_addr) if is_output else ("input", item.buffer_addr)
        in_place = is_output and item.buffer_addr and covers(storage, item.buffer_addr)  # the input follows
        if addr and not in_place and covers(storage, addr) and _during(storage, item):
            at = f"{addr - storage.base} bytes into" if addr != storage.base else "at the start of"
            says = f"{item.state}: its {role} began {at} the storage"
            yield PointedBy(what=f"{item.op} #{item.sequence_nr}", addr=hex_addr(addr), says=says)


def _during(storage: Storage, item: Collective) -> bool:
    """Whether a collective was called while the storage lived; unknown for dumps, which have no epochs."""
    return item.epoch is None or lived_at(storage, item.epoch)
