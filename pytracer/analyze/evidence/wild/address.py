"""What the address of a wild pointer shows by itself: how it came to be refused, and how sure it is that it is wild."""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.address_space.referrers import STATE_REGISTERS, is_stored, stack_words
from pytracer.analyze.evidence.own_code.pointer_content import half_of_storage, numbers_in_pointer
from pytracer.analyze.evidence.own_code.unowned_view import unowned_view
from pytracer.analyze.evidence.phrases import access_verb, in_function
from pytracer.analyze.platform.addresses import why_none
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_NEAR_BYTES = 1 << 20
_SAME_PART_BYTES = 1 << 32
_PAGE_BYTES, _CHUNK_HEADER_BYTES = 4096, 16
_POINTER_BYTES = 4
_LEAST_CHUNK, _MOST_CHUNK = 0x20, 0x1000


def access_words(view: ProcessView) -> str:
    """`wrote to memory through a wild pointer, 0x123456789018,`."""
    executes = view.fault is not None and view.fault.access == "execute"
    if was_large_block(view) and not executes:
        freed = "unmapped memory, where a large block of malloc() may have begun"
        return f"{access_verb(view)} {freed}, {address_words(view)}{',' if in_function(view) else ''}"
    what = "jumped" if executes else f"{access_verb(view)} memory"
    numbers = numbers_in_pointer(view)
    holds = f", which holds {numbers}" if numbers is not None else ""
    return f"{what} through a wild pointer, {address_words(view)}{holds}{',' if in_function(view) else ''}"


def address_words(view: ProcessView) -> str:
    """The address, as far as the processor reports it."""
    place = view.place
    if place is None or (place.kind == "non-canonical" and place.addr == 0):
        return "whose value the processor does not report"
    return hex_addr(place.addr)


def address_confidence(view: ProcessView) -> Confidence:
    """How sure it is that the pointer was wild, by nothing but the address."""
    if half_of_storage(view) is not None:
        return "likely"
    if may_be_indexed(view) or was_large_block(view):
        return "possible"
    if view.place is not None and view.place.kind == "non-canonical":
        stored = view.crash is not None and is_stored(view.crash, view.place.addr)
        return "certain" if view.place.addr and stored else "likely"  # else a sum with an index, both of which are gone
    if unowned_view(view) is not None:  # an array of the line claims the address
        return "possible"
    return "likely" if view.process.snapshot.storages or _is_small(view) else "possible"


def may_be_indexed(view: ProcessView) -> bool:
    """Whether a register points at the first byte of a live storage: the address may be that, plus a wrong index.

    So may it be where only the stack does, and the storage lies in the same part of memory.
    """
    crash, place = view.crash, view.place
    if crash is None or place is None or _is_small(view):
        return False
    if any(_is_start(view, value) for name, value in crash.registers.items() if name not in STATE_REGISTERS):
        return True
    near = (value for _, value in stack_words(crash) if abs(place.addr - value) < _SAME_PART_BYTES)
    return any(_is_start(view, value) for value in near)


def was_large_block(view: ProcessView) -> bool:
    """Whether the address is the start of what malloc() maps for a large block alone: 16 bytes into a page."""
    crash, place = view.crash, view.place
    if crash is None or place is None or place.kind != "unmapped" or not crash.mappings:
        return False
    among = crash.mappings[0].start < place.addr < crash.mappings[-1].end
    return among and place.addr % _PAGE_BYTES == _CHUNK_HEADER_BYTES


def is_block_size(view: ProcessView) -> bool:
    """Whether the pointer is what the heap keeps before a block: an element behind the last one of an array."""
    return _is_small(view) and view.instruction is not None and _is_chunk_size(view.instruction.base_value or 0)


def address_evidence(view: ProcessView) -> Evidence | None:
    """Why it is the address of nothing known, and does not come from a null pointer."""
    place = view.place
    if place is None:
        return None
    addr = hex_addr(place.addr)
    if place.kind == "non-canonical":
        why = why_none(view.process.snapshot.arch)
        return Evidence("address-bits", f"no process can have memory at such an address ({why})", addr=addr)
    if place.kind == "stack-guard":
        return Evidence(
            "stack-bounds",
            "the address lay just below this thread's stack by chance: the stack pointer was far from there",
            addr=addr,
        )
    if place.kind not in ("null", "near-null"):
        storages = ", no live storage and no freed storage that is still remembered"
        known = storages if view.process.snapshot.storages else ""
        return Evidence("mapping", f"the address lay in no mapping{_near_mappings(view, place.addr)}{known}", addr=addr)
    return _not_null(view, addr)


def _not_null(view: ProcessView, addr: str) -> Evidence:
    """Of a small address: why it is no offset from null."""
    instruction = view.instruction
    if instruction is None or not instruction.base_value:
        words = "the address is not aligned as an offset from null would be, or no register was null"
        return Evidence("alignment", words, addr=addr)
    held = hex_addr(instruction.base_value)
    if _is_chunk_size(instruction.base_value):
        size = instruction.base_value & ~7
        return Evidence(
            "register-value",
            f"{instruction.base} held {held}, which is what the heap keeps in front of "
            f"its next block, of {size} bytes: the pointer was read past the end of an array or vector",
            register=instruction.base,
            addr=held,
            nbytes=size,
        )
    return Evidence(
        "register-value",
        f"the base register {instruction.base} held {held}, which is neither null nor "
        f"{'aligned as a pointer' if instruction.base_value % _POINTER_BYTES else 'an address of this process'}",
        register=instruction.base,
        addr=held,
    )


def _is_small(view: ProcessView) -> bool:
    return view.place is not None and view.place.kind in ("null", "near-null")


def _is_start(view: ProcessView, value: int) -> bool:
    storage = view.space.live_around(value)
    return storage is not None and storage.base == value


def _is_chunk_size(value: int) -> bool:
    """The word before a block of glibc's heap: a multiple of 16, and in its lowest bits that the one before is used."""
    return _LEAST_CHUNK <= value & ~7 <= _MOST_CHUNK and value & ~7 & 15 == 0 and value & 7 in (1, 5)


def _near_mappings(view: ProcessView, addr: int) -> str:
    """Which mappings end or begin close to the address: a pointer that ran over their ends."""
    region = view.space.regions.at(addr)
    if region is None or region.kind != "unmapped":
        return ""
    near = any(abs(addr - edge) < _NEAR_BYTES for edge in (region.start, region.end) if edge)
    return f" ({region.beside})" if near else ""
