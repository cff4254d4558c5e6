"""The code in a core dump of a CUDA device: functions, source lines and instructions at its addresses.

Images are as they were loaded, with relocations applied: a kernel that was loaded has a section of its own at its
address; the others of its file have the address 0.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import cached_property
from itertools import islice
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
_MOST_SYMBOLS = 1 << 14
_MOST_ADDRESSES = 256  # whose function is looked for
_MOST_NAMED, _MOST_LINES = 1 << 14, 4
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
        self._known: dict[int, Function | None] = {}
        self._lines_left = _MOST_LINES

    def function(self, addr: int) -> Function | None:
        """The innermost function around an address."""
        if addr not in self._known and len(self._known) < _MOST_ADDRESSES:
            self._known[addr] = self._look_for(addr)
        return self._known.get(addr)

    def _look_for(self, addr: int) -> Function | None:
        at = bisect_right(self._starts, addr) - 1
        if at < 0:
            return None
        image, section = self._sections[at]
        return _function(image, section, addr) if addr < section.addr + section.nbytes else None

    def line(self, function: Function, addr: int) -> tuple[str, int] | None:
        """File and line, for code that was compiled with them (Triton; nvcc's -lineinfo)."""
        image = function.image
        self._lines_left -= 1
        for section in islice(image.sections(), _MOST_NAMED if self._lines_left >= 0 else 0):
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
            found += [(image, part) for part in image.sections() if part.addr and image.named(part, _TEXT.encode())]
        return sorted(found, key=lambda item: item[1].addr)

    @cached_property
    def _starts(self) -> list[int]:
        return [section.addr for _, section in self._sections]


def _function(image: Elf, section: Section, addr: int) -> Function:
    """A device function that was not inlined is a symbol inside of its kernel's section: `$kernel$_Z4deepPKfi`."""
    kernel = demangle(image.name(section)[len(_TEXT) :])
    start, end, name = section.addr, section.addr + section.nbytes, kernel
    first, last = end, end  # of the functions inside, and the end of all
    for table in islice(image.of_type(_SYMBOLS), 1):
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
