"""Line tables of DWARF 2 to 4 (`.debug_line`): address to source line. CUDA's compilers write version 2.

The table is read once from its beginning, and every instruction of it takes at least a byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LONGEST_TABLE = 1 << 20
_MOST_FILES = 10_000
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


def source_line(table: bytes, addr: int) -> tuple[str, int] | None:
    """File and line of the instruction at an address; None if the table has none, or is of another kind.

    Addresses are those of the table: of an image as it was loaded only if its relocations were applied.
    """
    at, table = 0, table[:LONGEST_TABLE]
    while at + 10 <= len(table):
        nbytes, version = struct.unpack_from("<IH", table, at)
        end = at + 4 + nbytes
        if not 2 <= version <= 4 or nbytes >= 0xFFFFFFF0 or end > len(table):
            return None
        try:
            found = _of_unit(table[at:end], version, addr)
        except (IndexError, struct.error):
            return None
        if found is not None:
            return found
        at = end
    return None


def _of_unit(unit: bytes, version: int, addr: int) -> tuple[str, int] | None:
    (header_bytes,) = struct.unpack_from("<I", unit, 6)
    program = 10 + header_bytes
    at = 12 if version >= 4 else 11  # behind the length of an instruction and, since 4, of a bundle
    _, base, span, first = struct.unpack_from("<BbBB", unit, at)
    if span == 0 or first == 0 or program > len(unit):
        return None
    lengths = unit[at + 4 : at + 3 + first]
    unit_bytes = unit[10]
    before: tuple[int, int, int] | None = None
    for row in _rows(unit, program, unit_bytes, base, span, first, lengths):
        here, file, line, last = row
        if before is not None and before[0] <= addr < here:
            name = _file(unit[at + 3 + first : program], before[1])
            return (name, before[2]) if name and before[2] > 0 else None
        before = None if last else (here, file, line)
    return None


def _rows(
    unit: bytes, at: int, unit_bytes: int, base: int, span: int, first: int, lengths: bytes
) -> Iterator[tuple[int, int, int, bool]]:
    """Address, file, line, and whether it only ends a sequence."""
    addr, file, line = 0, 1, 1
    while at < len(unit):
        code, at = unit[at], at + 1
        if code >= first:
            addr += (code - first) // span * unit_bytes
            line += base + (code - first) % span
            yield addr, file, line, False
        elif code == 0:
            size, at = unsigned(unit, at)
            if size == 0:
                continue
            if unit[at] == _END_SEQUENCE:
                yield addr, file, line, True
                addr, file, line = 0, 1, 1
            elif unit[at] == _SET_ADDRESS and size == 9:
                (addr,) = struct.unpack_from("<Q", unit, at + 1)
            at += size
        elif code == _COPY:
            yield addr, file, line, False
        elif code == _ADVANCE_PC:
            value, at = unsigned(unit, at)
            addr += value * unit_bytes
        elif code == _ADVANCE_LINE:
            value, at = _signed(unit, at)
            line += value
        elif code == _SET_FILE:
            file, at = unsigned(unit, at)
        elif code == _CONST_ADD_PC:
            addr += (255 - first) // span * unit_bytes
        elif code == _FIXED_ADVANCE_PC:
            addr += int(struct.unpack_from("<H", unit, at)[0])
            at += 2
        else:
            for _ in range(lengths[code - 1]):
                _, at = unsigned(unit, at)


def _file(header: bytes, number: int) -> str | None:
    """The path of a file of the header's tables; the directory of the compilation is not in them."""
    directories: list[str] = []
    at = 0
    while header[at] and len(directories) < _MOST_FILES:
        text, at = _text(header, at)
        directories.append(text)
    at += 1
    for current in range(1, _MOST_FILES):
        if not header[at]:
            return None
        name, at = _text(header, at)
        directory, at = unsigned(header, at)
        _, at = unsigned(header, at)  # time
        _, at = unsigned(header, at)  # size
        if current == number:
            inside = 0 < directory <= len(directories) and not name.startswith("/")
            return f"{directories[directory - 1]}/{name}" if inside else name
    return None


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise IndexError("a name has no end")
    return data[at:end].decode("utf-8", "replace"), end + 1


def unsigned(data: bytes, at: int) -> tuple[int, int]:
    """LEB128, of which 64 bits are kept."""
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        if shift < 64:
            value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value & (1 << 64) - 1, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, end = unsigned(data, at)
    bits = min(7 * (end - at), 64)
    return value - (1 << bits) if value >> bits - 1 & 1 else value, end
