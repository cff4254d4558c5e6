"""Sections of a 64-bit little-endian ELF file, also of damaged and hostile ones.

Nothing is read past the end, and a section is read on demand: a file may have a million of them, all with the same long
name, or each spanning the whole file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pytracer.decode.files import Window

_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TYPE = struct.Struct("<4xI56x")
_TYPE_AND_PLACE = struct.Struct("<4xI16xQQ24x")
_MOST_SECTIONS = 1 << 20
_MOST_SEGMENTS = 4096
_LOAD, _NOTES, _STRINGS, _NO_BITS = 1, 7, 3, 8
_LONGEST_STRING = 16384
_MOST_NOTES = 4096  # bytes
_BUILD_ID = 3


class NotElf(ValueError):
    """The content is no ELF file, or not one of this kind."""


class Section(NamedTuple):
    """One section header; `Elf.name` has its name."""

    number: int
    name_at: int
    type: int
    flags: int
    addr: int
    offset: int
    nbytes: int
    link: int
    info: int
    row_bytes: int


class Elf:
    """The sections of `data`. `truncated`: some of them lie past its end."""

    def __init__(self, data: Window) -> None:
        self.data = data
        head = data.read(0, 16 + _HEADER.size)
        if head[:4] != b"\x7fELF":
            raise NotElf("it is no ELF file")
        if head[4:6] != b"\x02\x01" or len(head) < 16 + _HEADER.size:
            raise NotElf("it is an ELF file of another kind, or its header is cut off")
        self.type, self.machine, _, _, self._segments, offset, _, _, stride, segments, size, count, names = (
            _HEADER.unpack_from(head, 16)
        )
        self._segment_count = segments if stride == _SEGMENT.size else 0
        self.truncated = False
        self.count = 0
        self._table = b""
        self._by_type: dict[int, list[int]] | None = None
        if offset == 0:
            self._names = Window(b"")
            return
        first = data.read(offset, _SECTION.size)
        if size != _SECTION.size or len(first) < size:
            raise NotElf("its table of sections is cut off")
        values = _SECTION.unpack(first)
        if count == 0:  # more than fit into 16 bits: elf(5), SHN_LORESERVE
            count = values[5]
        if names == 0xFFFF:
            names = values[6]
        self.count = min(count, (data.nbytes - offset) // size, _MOST_SECTIONS)
        self.truncated = count > self.count
        self._table = data.read(offset, self.count * size)
        self.count = min(self.count, len(self._table) // size)
        self._table = self._table[: self.count * size]
        places = _TYPE_AND_PLACE.iter_unpack(self._table)
        self.truncated |= any(kind != _NO_BITS and at + nbytes > data.nbytes for kind, at, nbytes in places)
        self._names = self.content(self.section(names)) if names < self.count else Window(b"")

    def section(self, number: int) -> Section:
        """Raises IndexError when there is no such section."""
        if not 0 <= number < self.count:
            raise IndexError(f"there is no section {number}")
        values = _SECTION.unpack_from(self._table, number * _SECTION.size)
        return Section._make((number, *values[:8], values[9]))

    def sections(self) -> Iterator[Section]:
        """All, in order."""
        return map(self.section, range(self.count))

    def of_type(self, type: int) -> Iterator[Section]:
        """The sections of a type."""
        return map(self.section, self._types().get(type, ()))

    def _types(self) -> dict[int, list[int]]:
        if self._by_type is None:
            self._by_type = {}
            for number, (kind,) in enumerate(_TYPE.iter_unpack(self._table)):
                self._by_type.setdefault(kind, []).append(number)
        return self._by_type

    def named(self, section: Section, prefix: bytes) -> bool:
        """Whether a section's name begins so; cheaper than its name."""
        return self._names.read(section.name_at, len(prefix)) == prefix

    def name(self, section: Section) -> str:
        """The name of a section."""
        return _text(self._names, section.name_at)

    def content(self, section: Section) -> Window:
        """Its bytes, as many as there are."""
        return Window(b"") if section.type == _NO_BITS else self.data.part(section.offset, section.nbytes)

    def string(self, offset: int) -> str:
        """From the string table `.strtab`; "" when there is none."""
        table = next((item for item in self.of_type(_STRINGS) if self.named(item, b".strtab\0")), None)
        return _text(self.content(table), offset) if table is not None else ""

    def string_of(self, table: Section, offset: int) -> str:
        """From the string table that belongs to `table`."""
        return _text(self.content(self.section(table.link)), offset)

    def build_id(self) -> str | None:
        """The GNU build id, as hexadecimal digits."""
        for section in self.of_type(_NOTES):
            if self.named(section, b".note.gnu.build-id\0"):
                return _build_id(self.content(section).read(0, _MOST_NOTES))
        return None

    def address_of(self, offset: int) -> int | None:
        """The virtual address of a byte of the file, as the segments map it."""
        for at, addr, nbytes in self._loaded():
            if 0 <= offset - at < nbytes:
                return offset - at + addr
        return None

    def load_address(self) -> int:
        """The lowest virtual address: 0 for libraries and most programs, 0x400000 for those at a fixed place."""
        return min((addr for _, addr, _ in self._loaded()), default=0)

    def _loaded(self) -> Iterator[tuple[int, int, int]]:
        """Offset, virtual address and size in the file of each segment that is loaded."""
        table = self.data.read(self._segments, min(self._segment_count, _MOST_SEGMENTS) * _SEGMENT.size)
        for start in range(0, len(table) - _SEGMENT.size + 1, _SEGMENT.size):
            kind, _, at, addr, _, nbytes, _, _ = _SEGMENT.unpack_from(table, start)
            if kind == _LOAD:
                yield at, addr, nbytes

    def has_debug_information(self) -> bool:
        """Whether it describes its source: DWARF in `.debug_info`, compressed or not."""
        return any(
            item.type != _NO_BITS and item.nbytes and self.named(item, name)
            for item in self.sections()
            for name in (b".debug_info\0", b".zdebug_info\0")
        )


def _build_id(notes: bytes) -> str | None:
    """elf(5), Nhdr: sizes of name and description, type; both are padded to 4 bytes."""
    at = 0
    while at + 12 <= len(notes):
        name_bytes, nbytes, kind = struct.unpack_from("<III", notes, at)
        name, start = notes[at + 12 : at + 12 + name_bytes], at + 12 + name_bytes + -name_bytes % 4
        if kind == _BUILD_ID and name == b"GNU\0":
            return notes[start : start + nbytes].hex()
        at = start + nbytes + -nbytes % 4
    return None


def _text(table: Window, offset: int) -> str:
    return table.read(offset, _LONGEST_STRING).split(b"\0", 1)[0].decode("utf-8", "replace")
