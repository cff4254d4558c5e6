"""Sections of a 64-bit little-endian ELF file in memory, also of damaged ones: nothing is read past its end."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MOST_SECTIONS = 4_000_000
_STRINGS = 3  # SHT_STRTAB
_NO_BITS = 8
_LONGEST_STRING = 16384


class NotElf(ValueError):
    """The content is no ELF file, or not one of this kind."""


@dataclass(frozen=True)
class Section:
    """One section header."""

    index: int
    name: str
    type: int
    addr: int
    offset: int
    nbytes: int
    link: int
    info: int
    row_bytes: int


class Elf:
    """The sections of `data`. `truncated`: some of them lie past its end."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        head = bytes(self.data[: 16 + _HEADER.size])
        if head[:4] != b"\x7fELF":
            raise NotElf("it is no ELF file")
        if head[4:6] != b"\x02\x01" or len(head) < 16 + _HEADER.size:
            raise NotElf("it is an ELF file of another kind, or its header is cut off")
        header = _HEADER.unpack_from(head, 16)
        self.type, self.machine = header[0], header[1]
        offset, stride, count, names = header[5], header[10], header[11], header[12]
        self.truncated = False
        self.sections: list[Section] = []
        if offset == 0:
            return
        if stride != _SECTION.size or offset + stride > len(self.data):
            raise NotElf("its table of sections is cut off")
        first = _SECTION.unpack_from(self.data, offset)
        if count == 0:  # more than fit into 16 bits: elf(5), SHN_LORESERVE
            count = first[5]
        if names == 0xFFFF:
            names = first[6]
        room = (len(self.data) - offset) // stride
        self.truncated = count > room
        table = bytes(self.data[offset : offset + min(count, room, _MOST_SECTIONS) * stride])
        raw = list(_SECTION.iter_unpack(table))
        self.truncated |= any(item[1] != _NO_BITS and item[4] + item[5] > len(self.data) for item in raw)
        texts = self._bytes(raw[names]) if names < len(raw) else b""
        self.sections = [
            Section(index, _text(texts, item[0]), item[1], item[3], item[4], item[5], item[6], item[7], item[9])
            for index, item in enumerate(raw)
        ]

    def content(self, section: Section) -> bytes:
        """Its bytes, as many as there are."""
        if section.type == _NO_BITS:
            return b""
        return bytes(self.data[section.offset : section.offset + section.nbytes])

    def string(self, offset: int) -> str:
        """From the string table `.strtab`; "" when there is none."""
        for section in self.sections:
            if section.type == _STRINGS and section.name == ".strtab":
                return _text(self.content(section), offset)
        return ""

    def _bytes(self, raw: tuple[int, ...]) -> bytes:
        return bytes(self.data[raw[4] : raw[4] + raw[5]])


def _text(table: bytes, offset: int) -> str:
    if offset >= len(table):
        return ""
    end = table.find(b"\0", offset, offset + _LONGEST_STRING)
    return table[offset : end if end >= 0 else offset + _LONGEST_STRING].decode("utf-8", "replace")
