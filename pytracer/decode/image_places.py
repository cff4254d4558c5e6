"""An address inside an image: its section and the symbol around it, code or data, read from the image on this machine.

Unlike `symbolize.py`, which names functions of stacks, this answers for one address, and for variables as well.
"""

from __future__ import annotations

import os
import stat
import struct
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile

from pytracer.decode.demangle import demangle
from pytracer.decode.symbolize import build_id_of

_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_NAMED = (1, 2, 10)  # STT_OBJECT, STT_FUNC, STT_GNU_IFUNC
_IN_MEMORY = 2  # SHF_ALLOC
_LARGEST_TABLE = 1 << 28


class ImagePlace(NamedTuple):
    """`symbol_offset` is the distance from the symbol's first byte. Any field may be None."""

    section: str | None = None
    symbol: str | None = None
    symbol_offset: int | None = None


def place_in_image(path: str, build_id: str | None, addr: int) -> ImagePlace:
    """What lies at an ELF virtual address. Empty when the image is not there, is another one or cannot be read."""
    try:
        if build_id is None or not path.startswith("/") or not stat.S_ISREG(os.stat(path).st_mode):
            return ImagePlace()
        with open(path, "rb") as file:
            elf = ELFFile(file)
            if elf.elfclass != 64 or not elf.little_endian or build_id_of(elf) != build_id:
                return ImagePlace()
            return ImagePlace(_section(elf, addr), *_symbol(elf, addr))
    except Exception:
        # pyelftools 0.32 raises its own errors, AttributeError, TypeError and more on a damaged image; the address is
        # told without a name then, as it is on a machine that does not have the image.
        return ImagePlace()


def _section(elf: Any, addr: int) -> str | None:
    for section in elf.iter_sections():
        if section["sh_flags"] & _IN_MEMORY and section["sh_addr"] <= addr < section["sh_addr"] + section["sh_size"]:
            return str(section.name)
    return None


def _symbol(elf: Any, addr: int) -> tuple[str | None, int | None]:
    """The smallest symbol around the address, from the full table, else the dynamic one."""
    for name in (".symtab", ".dynsym"):
        section = elf.get_section_by_name(name)
        if section is None or section["sh_type"] == "SHT_NOBITS" or section["sh_size"] > _LARGEST_TABLE:
            continue
        elf.stream.seek(section["sh_offset"])
        content = elf.stream.read(section["sh_size"])
        around = [
            (size, name_at, value)
            for name_at, info, _, index, value, size in _SYMBOL.iter_unpack(content[: len(content) // 24 * 24])
            if value <= addr < value + size and index and info & 15 in _NAMED
        ]
        if around:
            _, name_at, value = min(around)
            strings = elf.get_section(section["sh_link"])
            elf.stream.seek(strings["sh_offset"] + name_at)
            raw = elf.stream.read(min(65536, max(0, strings["sh_size"] - name_at)))
            return demangle(raw.split(b"\0", 1)[0].decode("utf-8", "replace")) or None, addr - value
    return None, None
