"""An address in a sentence, in AddressSanitizer's style: "16 bytes past the end of a live storage of 4096 bytes".

The same sentence for every address: the fault, its operands, registers, words of the stack, `pytracer where`.
"""

from __future__ import annotations

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.address_info import Place

_WITHOUT_IN = ("unmapped", "non-canonical")


def offset_words(place: Place, start: str = "at the start of") -> str:
    """`64 bytes into`, `16 bytes past the end of`, `8 bytes before`: the address relative to its storage."""
    if place.storage is None:
        return ""
    behind = (place.offset_bytes or 0) - place.storage.nbytes
    if place.kind == "before-storage":
        return f"{_bytes(-(place.offset_bytes or 0))} before"
    if place.kind == "past-storage":
        return f"{_bytes(behind)} past the end of" if behind else "right past the end of"
    return f"{_bytes(place.offset_bytes or 0)} into" if place.offset_bytes else start


def storage_phrase(place: Place, start: str = "at the start of", bounds: str = "") -> str | None:
    """`64 bytes into a live storage of 4096 bytes (parameter layer.weight)`, with `bounds` after the size."""
    storage = place.storage
    if storage is None:
        return None
    kind = "a live storage" if storage.state == "live" else "freed storage"
    name = place.name or ""
    if place.bucket is not None and place.bucket.parameter:
        name += f", gradient of {place.bucket.parameter}"
    elif place.unit is not None and place.unit.parameter and place.unit.parameter not in name:
        name += f", {place.unit.parameter}"
    of = f"{offset_words(place, start)} {kind} of {size_words(storage.nbytes)}{bounds}"
    return f"{of} ({name})" if name else of


def region_phrase(kind: str, words: str) -> str:
    """`in the stack of thread gloo (12)`, `not mapped: 4096 bytes behind ...`."""
    return words if kind in _WITHOUT_IN else f"in {words}"


def address_sentence(place: Place, kind: str | None, region: str | None) -> str | None:
    """`is 64 bytes into a live storage of 4096 bytes [0x.., 0x..) (parameter w)`; None when nothing is known.

    Args:
        place: The address.
        kind: Kind of the region it lay in.
        region: The region in words.
    """
    if place.storage is not None:
        end = place.storage.base + place.storage.nbytes
        return f"is {storage_phrase(place, bounds=f' [{hex_addr(place.storage.base)}, {hex_addr(end)})')}"
    return f"is {region_phrase(kind, region)}" if kind and region else None


def _bytes(count: int) -> str:
    """Exact, with the size in larger units if that is easier to read."""
    if count == 1:
        return "1 byte"
    return f"{count} bytes" if count < 1 << 20 else f"{size_words(count)} ({count} bytes)"
