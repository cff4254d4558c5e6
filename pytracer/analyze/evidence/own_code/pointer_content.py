"""What a pointer holds that was overwritten: numbers of an array, or text, that somebody wrote over an object.

Of addresses that no process can have it is said; of others, where nothing is mapped, that it may be so.
"""

from __future__ import annotations

import math
import struct

from pytracer._text import size_words
from pytracer.analyze.evidence.lifetime.where_made import made_briefly
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage

_SMALLEST, _LARGEST = 1e-6, 1e6  # what data are, mostly
_MAPPED = ((0x5500, 0x5700), (0x7000, 0x8000))  # upper halves of addresses in use
_LEAST_USUAL, _MOST_USUAL = 1e-2, 1e2  # addresses of 1,010 to 1,104 MiB, where programs have nothing
_LEAST = 1 << 47  # of addresses on x86-64 and aarch64 with 48 bits, those that no program has begin here
_PLAIN_STEP = 1 << 16  # of the bits of a float32: 7 are left for the number
_NEGATIVE = 1 << 63
_FIRST, _LAST = 0x20, 0x7E  # characters of ASCII that are printed
_SHOWN = 4  # significant digits
_HALF = 1 << 32
_BLOCK_BYTES = 16  # malloc() and torch's allocators begin no block elsewhere


def numbers_in_pointer(view: ProcessView) -> str | None:
    """`two float32 numbers, 1 and 0.9999`, `the float64 number 0.5` and the like; None for anything else."""
    value, index = _pointer(view), _wild_index(view)
    if index is not None:
        held = numbers_in_word(index)
        return f"{held}, in its index" if held is not None else None
    kept = half_of_storage(view)
    if kept is not None and value is not None:
        (high,) = struct.unpack("<f", (value >> 32).to_bytes(4, "little"))
        tensor = f"a tensor of {size_words(kept.nbytes)}{made_briefly(view, kept.base)}"
        return f"the float32 number {high:.{_SHOWN}g} in the upper half of the address of {tensor}"
    return numbers_in_word(value) if value is not None else None


def half_of_storage(view: ProcessView) -> Storage | None:
    """The live storage whose address the lower half is still that of: a number was written over the upper half alone.

    That number has 4 bytes; one of 8 bytes would have changed both halves.
    """
    value = _pointer(view)
    if value is None or value < _LEAST or value % _BLOCK_BYTES or text_in_word(value) is not None:
        return None
    (high,) = struct.unpack("<f", (value >> 32).to_bytes(4, "little"))
    if not _is_number(high) or value % _HALF == 0:
        return None
    live = (item for item in view.process.snapshot.storages.by_size() if item.state == "live")
    return next((item for item in live if item.base >= _HALF and item.base % _HALF == value % _HALF), None)


def numbers_followed(view: ProcessView) -> str | None:
    """The same of what the processor took for an address, or for a part of one, without saying which."""
    index = _wild_index(view)
    value = index if index is not None else _pointer(view)
    return numbers_in_word(value) if value is not None else None


def numbers_in_word(value: int) -> str | None:
    """The same of 8 bytes that should be something else; ``the text `,0.5302,` `` where all are characters."""
    text = text_in_word(value)
    if text is not None:
        return f"the text `{text}`"
    if value < _LEAST:
        return _maybe(value)
    low, high = struct.unpack("<ff", value.to_bytes(8, "little"))
    if _is_number(low) and _is_number(high):
        return f"two float32 numbers, {low:.{_SHOWN}g} and {high:.{_SHOWN}g}"
    (double,) = struct.unpack("<d", value.to_bytes(8, "little"))
    is_whole = value & 0xFFFF_FFFF == 0  # 0.5 and 1.0 of 64 bits end in zeros
    if _is_number(high) and not is_whole and (_is_plain(high) or not _is_usual(double)):
        return f"the float32 number {high:.{_SHOWN}g} in its upper half"
    if not _is_number(double):
        return None
    either = f", or the float32 number {high:.{_SHOWN}g} in its upper half" if _is_usual(high) and not is_whole else ""
    return f"the float64 number {double:.{_SHOWN}g}{either}"


def text_in_word(value: int) -> str | None:
    """What 8 bytes say as characters, each of them one that is printed; no process has memory at such an address."""
    held = value.to_bytes(8, "little") if 0 <= value < 1 << 64 else b""
    return held.decode("ascii") if held and all(_FIRST <= byte <= _LAST for byte in held) else None


def text_in_pointer(view: ProcessView) -> str | None:
    """The same of the pointer."""
    value = _pointer(view)
    return text_in_word(value) if value is not None else None


def may_be_address(value: int) -> bool:
    """Whether programs have memory in that part of the address space, on Linux."""
    return any(first <= value >> 32 < end for first, end in _MAPPED)


def _is_plain(value: float) -> bool:
    """A number that people write, such as 0.5, 1 or 100: most of its lower bits are 0."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return bool(bits % _PLAIN_STEP == 0)


def _is_usual(value: float) -> bool:
    return math.isfinite(value) and _LEAST_USUAL <= abs(value) <= _MOST_USUAL


def _maybe(value: int) -> str | None:
    """Of an address that could be one: a number of the usual size in its lower half, nothing or one as small above."""
    high, low = value >> 32, value & 0xFFFF_FFFF
    if 0 < high <= _LARGEST and low <= _LARGEST and not may_be_address(value):
        return f"what may be two int32 numbers, {low} and {high}"
    (number,) = struct.unpack("<f", low.to_bytes(4, "little"))
    usual = math.isfinite(number) and _LEAST_USUAL <= number <= _MOST_USUAL
    return f"what may be the float32 number {number:.{_SHOWN}g}" if high == 0 and usual else None


def _wild_index(view: ProcessView) -> int | None:
    """The index, where no process can have that as an address, and the base could be one: one of two pointers."""
    instruction = view.instruction
    if instruction is None or instruction.scale != 1 or instruction.base_value is None:
        return None
    index = instruction.index_value
    return index if index is not None and 0 < instruction.base_value < _LEAST <= index < _NEGATIVE else None


def _pointer(view: ProcessView) -> int | None:
    """The register that the instruction used as a base, else the address itself."""
    if view.instruction is not None and view.instruction.base_value is not None:
        return view.instruction.base_value
    return view.place.addr if view.place is not None else None


def _is_number(value: float) -> bool:
    return math.isfinite(value) and _SMALLEST <= abs(value) <= _LARGEST
