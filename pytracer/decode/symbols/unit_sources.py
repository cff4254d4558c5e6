"""The source files that an image was compiled from, by its own debug information (DWARF 2 to 5, of 32 bits).

Of each unit the first entry alone is read: its name and the directory of the compilation. The bytes are untrusted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pytracer.decode.files import Window, regular_file
from pytracer.decode.symbols.dwarf_lines import unsigned
from pytracer.decode.symbols.elf_sections import Elf, NotElf

_MOST_UNITS, _MOST_ATTRIBUTES, _MOST_ABBREVIATIONS = 256, 64, 4096
_HEAD_BYTES, _TABLE_BYTES, _LONGEST_PATH = 4096, 1 << 16, 4096
_COMPRESSED = 0x800  # SHF_COMPRESSED
_COMPILE, _PARTIAL = 1, 3  # kinds of units since DWARF 5
_NAME, _DIRECTORY, _STRING_OFFSETS = 0x03, 0x1B, 0x72
_STRING, _STRP, _LINE_STRP, _IMPLICIT = 0x08, 0x0E, 0x1F, 0x21
_FIXED = {
    0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x0E: 4, 0x10: 4, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8, 0x17: 4,
    0x19: 0, 0x1C: 4, 0x1D: 4, 0x1E: 16, 0x1F: 4, 0x20: 8, 0x21: 0, 0x24: 8, 0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4,
    0x29: 1, 0x2A: 2, 0x2B: 3, 0x2C: 4,
}  # fmt: skip
_ADDRESS = 0x01
_LEB = (0x0D, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23)
_BLOCKS = {0x0A: 1, 0x03: 2, 0x04: 4}  # with the bytes of their length
_LONG_BLOCKS = (0x09, 0x18)
_INDICES = (0x1A, 0x25, 0x26, 0x27, 0x28)  # strings by number


class _Unit(NamedTuple):
    version: int
    abbreviations: int
    address_bytes: int
    entry: int


def unit_sources(path: str) -> list[str]:
    """Absolute paths, in order, each once; empty where the image is not here, or was built without `-g`."""
    if not path.startswith("/"):
        return []
    try:
        with regular_file(path, follow=True) as file:
            return list(dict.fromkeys(_sources(Elf(Window(file)))))
    except (OSError, NotElf, struct.error, IndexError, ValueError):
        return []  # as without debug information


def _sources(elf: Elf) -> Iterator[str]:
    wanted = (b".debug_info\0", b".debug_abbrev\0", b".debug_str\0", b".debug_line_str\0", b".debug_str_offsets\0")
    parts = {
        name: elf.content(item)
        for item in elf.sections()
        if not item.flags & _COMPRESSED
        for name in wanted
        if elf.named(item, name)
    }
    info, table, *texts = (parts.get(name, Window(b"")) for name in wanted)
    at = 0
    for _ in range(_MOST_UNITS):
        head = info.read(at, _HEAD_BYTES)
        if len(head) < 12:
            return
        (nbytes,) = struct.unpack_from("<I", head)
        if nbytes >= 0xFFFFFFF0:
            return
        unit = _unit(head)
        found = _first_entry(head, unit, table.read(unit.abbreviations, _TABLE_BYTES), texts) if unit else {}
        name, directory = found.get(_NAME), found.get(_DIRECTORY)
        if name and (name.startswith("/") or (directory or "").startswith("/")):
            yield os.path.normpath(os.path.join(directory or "/", name))
        at += 4 + nbytes


def _unit(head: bytes) -> _Unit | None:
    (version,) = struct.unpack_from("<H", head, 4)
    if 2 <= version <= 4:
        abbreviations, address_bytes = struct.unpack_from("<IB", head, 6)
        return _Unit(version, abbreviations, address_bytes, 11)
    if version == 5 and head[6] in (_COMPILE, _PARTIAL):
        return _Unit(version, struct.unpack_from("<I", head, 8)[0], head[7], 12)
    return None


def _first_entry(head: bytes, unit: _Unit, table: bytes, texts: list[Window]) -> dict[int, str]:
    """The texts of its attributes, by their numbers."""
    code, at = unsigned(head, unit.entry)
    held: dict[int, tuple[int, int, bytes]] = {}  # form, number, bytes of a text
    for attribute, form in _abbreviation(table, code):
        value, text, at = _value(head, at, form, unit)
        held[attribute] = form, value, text
    base = held.get(_STRING_OFFSETS, (0, 8, b""))[1]
    return {
        attribute: _text(*item, base, texts) for attribute, item in held.items() if attribute in (_NAME, _DIRECTORY)
    }


def _abbreviation(table: bytes, wanted: int) -> list[tuple[int, int]]:
    """The attributes of an entry with that code, each with its form."""
    at = 0
    for _ in range(_MOST_ABBREVIATIONS):
        code, at = unsigned(table, at)
        if code == 0:
            break
        _, at = unsigned(table, at)
        at += 1  # whether it has children
        found: list[tuple[int, int]] = []
        while len(found) < _MOST_ATTRIBUTES:
            attribute, at = unsigned(table, at)
            form, at = unsigned(table, at)
            if form == _IMPLICIT:
                _, at = unsigned(table, at)
            if not attribute and not form:
                break
            found.append((attribute, form))
        if code == wanted:
            return found
    return []


def _value(data: bytes, at: int, form: int, unit: _Unit) -> tuple[int, bytes, int]:
    """Its number, or its text, and where the next one begins."""
    if form == _STRING:
        end = data.index(b"\0", at)
        return 0, data[at:end], end + 1
    if form in _LEB:
        value, at = unsigned(data, at)
        return value, b"", at
    if form in _BLOCKS or form in _LONG_BLOCKS:
        if form in _LONG_BLOCKS:
            nbytes, at = unsigned(data, at)
        else:
            nbytes = int.from_bytes(data[at : at + _BLOCKS[form]], "little")
            at += _BLOCKS[form]
        return 0, b"", at + nbytes
    size = unit.address_bytes if form == _ADDRESS or (form == 0x10 and unit.version == 2) else _FIXED.get(form)
    if size is None or at + size > len(data):
        raise ValueError(f"form {form:#x} is not known")
    return int.from_bytes(data[at : at + size], "little"), b"", at + size


def _text(form: int, value: int, text: bytes, base: int, texts: list[Window]) -> str:
    strings, line_strings, offsets = texts
    if form in _INDICES:
        form, value = _STRP, int.from_bytes(offsets.read(base + 4 * value, 4), "little")
    if form in (_STRP, _LINE_STRP):
        table = strings if form == _STRP else line_strings
        text = table.read(value, _LONGEST_PATH).partition(b"\0")[0]
    return text.decode("utf-8", "replace")
