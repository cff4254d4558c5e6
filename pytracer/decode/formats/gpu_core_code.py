"""The code in a core dump of a CUDA device: functions, source lines and instructions at its addresses.

Images are as they were loaded, with relocations applied: a kernel that was loaded has a section of its own at its
address; the others of its file have the address 0.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import NamedTuple

from pytracer.decode.formats.sass import INSTRUCTION_BYTES
from pytracer.decode.symbols.demangle import demangle
from pytracer.decode.symbols.dwarf_lines import LONGEST_TABLE, source_line
from pytracer.decode.symbols.elf_sections import Elf, NotElf, Section

_RELOCATED_IMAGE = 0x80000007
_TEXT = ".text."
_SYMBOLS, _FUNCTION = 2, 2  # SHT_SYMTAB, STT_FUNC
_SYMBOL = struct.Struct("<IBBHQQ")
_MOST_IMAGE_SECTIONS = 1 << 20
_MOST_SYMBOLS = 1 << 16
_LONGEST_FUNCTION = 1 << 20


class Function(NamedTuple):
    """A function at an address; `kernel` is that of its section. `start` and `end` are addresses."""

    name: str
    kernel: str
    start: int
    end: int
    section: Section
    image: Elf

    @property
    def is_kernel(self) -> bool:
        """Whether it is what was launched, not a function that a kernel calls."""
        return self.start == self.section.addr


class Code:
    """The images of one file. `broken`: how many of them could not be used."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self.broken = 0

    def function(self, addr: int) -> Function | None:
        """The innermost function around an address."""
        for image, section in self._sections:
            if section.addr and section.addr <= addr < section.addr + section.nbytes:
                return _function(image, section, addr)
        return None

    def line(self, function: Function, addr: int) -> tuple[str, int] | None:
        """File and line, for code that was compiled with them (Triton; nvcc's -lineinfo)."""
        image = function.image
        for section in image.sections():
            if section.nbytes and image.named(section, b".debug_line\0"):
                return source_line(image.content(section).read(0, LONGEST_TABLE), addr)
        return None

    def bytes_of(self, function: Function) -> bytes:
        """All its instructions; b"" if it is too long."""
        if function.end - function.start > _LONGEST_FUNCTION:
            return b""
        section = function.section
        window = function.image.content(section)
        return window.read(function.start - section.addr, function.end - function.start)

    def instruction(self, addr: int) -> bytes:
        """The 16 bytes at an address; b"" where no image is."""
        function = self.function(addr)
        if function is None:
            return b""
        at = addr - function.section.addr
        return function.image.content(function.section).read(at, INSTRUCTION_BYTES)

    @cached_property
    def _sections(self) -> list[tuple[Elf, Section]]:
        found: list[tuple[Elf, Section]] = []
        left = _MOST_IMAGE_SECTIONS
        for section in self._elf.of_type(_RELOCATED_IMAGE):
            try:
                image = Elf(self._elf.content(section))
            except (NotElf, struct.error):
                self.broken += 1
                continue
            left -= image.count
            if left < 0:
                self.broken += 1
                break
            found += [(image, part) for part in image.sections() if image.named(part, _TEXT.encode())]
        return found


def _function(image: Elf, section: Section, addr: int) -> Function:
    """A device function that was not inlined is a symbol inside of its kernel's section: `$kernel$_Z4deepPKfi`."""
    kernel = demangle(image.name(section)[len(_TEXT) :])
    start, end, name = section.addr, section.addr + section.nbytes, kernel
    first, last = end, end  # of the functions inside, and the end of all
    for table in image.of_type(_SYMBOLS):
        data = image.content(table).read(0, _MOST_SYMBOLS * _SYMBOL.size)
        data = data[: len(data) // _SYMBOL.size * _SYMBOL.size]
        for name_at, info, _, place, value, nbytes in _SYMBOL.iter_unpack(data):
            if info & 15 != _FUNCTION or place != section.number or not section.addr < value < last:
                continue
            first = min(first, value)
            if start <= value <= addr < value + nbytes:
                start, end = value, min(value + nbytes, last)
                name = demangle(image.string_of(table, name_at).rpartition("$")[2]) or kernel
    return Function(name, kernel, start, end if start != section.addr else first, section, image)
