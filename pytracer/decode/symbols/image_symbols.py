"""An address inside an image: its section and the symbol around it, code or data, read from the image on this machine.

Unlike `symbolize.py`, which names functions of stacks, this answers for one address, and for variables as well.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

from pytracer.decode.files import MIB, Window, regular_file
from pytracer.decode.symbols.demangle import demangle
from pytracer.decode.symbols.elf_sections import Elf, NotElf
from pytracer.decode.symbols.symbolize import DYNAMIC_SYMBOLS, SYMBOLS, symbol_table

_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_NAMED = (1, 2, 10)  # STT_OBJECT, STT_FUNC, STT_GNU_IFUNC
_FUNCTION = 2
_IN_MEMORY = 2  # SHF_ALLOC
_LARGEST_TABLE = 96 * MIB
_LARGEST_IMPORTS = 2 * MIB  # of which each name is read
_AT_ONCE = 24 << 16


class ImagePlace(NamedTuple):
    """`symbol_offset` is the distance from the symbol's first byte. Any field may be None."""

    section: str | None = None
    symbol: str | None = None
    symbol_offset: int | None = None


def place_in_image(path: str, build_id: str | None, addr: int) -> ImagePlace:
    """What lies at an ELF virtual address. Empty when the image is not there, is another one or cannot be read."""
    if build_id is None or not path.startswith("/"):
        return ImagePlace()
    try:
        with regular_file(path, follow=True) as file:
            elf = Elf(Window(file))
            return ImagePlace(_section(elf, addr), *_symbol(elf, addr)) if elf.build_id() == build_id else ImagePlace()
    except (OSError, NotElf, struct.error, IndexError, ValueError):
        # The address then has no name, as on a machine without the image.
        return ImagePlace()


def function_before(path: str, build_id: str | None, addr: int) -> tuple[str, int] | None:
    """The function that ends last before an address in none, and the bytes between; None without a full table."""
    if build_id is None or not path.startswith("/"):
        return None
    try:
        with regular_file(path, follow=True) as file:
            elf = Elf(Window(file))
            table = symbol_table(elf, SYMBOLS)
            if elf.build_id() != build_id or table is None or table.nbytes > _LARGEST_TABLE:
                return None
            content = elf.content(table)
            if any(True for _ in _around(content, addr)):
                return None
            end, name = max(_ends_before(content, addr), default=(0, 0))
            return (demangle(elf.string_of(table, name)) or "", addr - end) if end else None
    except (OSError, NotElf, struct.error, IndexError, ValueError):
        return None  # as above


def imported(path: str, build_id: str | None, names: Collection[str]) -> frozenset[str]:
    """Which of these functions an image takes from other images; none where it is not here, or is another one."""
    if build_id is None or not path.startswith("/"):
        return frozenset()
    try:
        with regular_file(path, follow=True) as file:
            elf = Elf(Window(file))
            table = symbol_table(elf, DYNAMIC_SYMBOLS)
            if elf.build_id() != build_id or table is None or table.nbytes > _LARGEST_IMPORTS:
                return frozenset()
            found = {elf.string_of(table, name) for name in _undefined(elf.content(table))}
            return frozenset(found.intersection(names))
    except (OSError, NotElf, struct.error, IndexError, ValueError):
        return frozenset()  # as above


def _undefined(table: Window) -> Iterator[int]:
    """Where the names of symbols begin that another image has."""
    for start in range(0, table.nbytes, _AT_ONCE):
        part = table.read(start, _AT_ONCE)
        for name, _, _, index, _, _ in _SYMBOL.iter_unpack(part[: len(part) // 24 * 24]):
            if name and not index:
                yield name


def _ends_before(table: Window, addr: int) -> Iterator[tuple[int, int]]:
    for start in range(0, table.nbytes, _AT_ONCE):
        part = table.read(start, _AT_ONCE)
        for name, info, _, index, value, size in _SYMBOL.iter_unpack(part[: len(part) // 24 * 24]):
            if info & 15 == _FUNCTION and index and size and value + size <= addr:
                yield value + size, name


def _section(elf: Elf, addr: int) -> str | None:
    for section in elf.sections():
        if section.flags & _IN_MEMORY and section.addr <= addr < section.addr + section.nbytes:
            return elf.name(section)
    return None


def _symbol(elf: Elf, addr: int) -> tuple[str | None, int | None]:
    """The smallest symbol around the address, from the full table, else the dynamic one."""
    for kind in (SYMBOLS, DYNAMIC_SYMBOLS):
        table = symbol_table(elf, kind)
        if table is None or table.nbytes > _LARGEST_TABLE:
            continue
        best = min(_around(elf.content(table), addr), default=None)
        if best is not None:
            return demangle(elf.string_of(table, best[1])) or None, addr - best[2]
    return None, None


def _around(table: Window, addr: int) -> Iterator[tuple[int, int, int]]:
    """Size, name and address of the symbols around an address."""
    for start in range(0, table.nbytes, _AT_ONCE):
        part = table.read(start, _AT_ONCE)
        for name, info, _, index, value, size in _SYMBOL.iter_unpack(part[: len(part) // 24 * 24]):
            if value <= addr < value + size and index and info & 15 in _NAMED:
                yield size, name, value
