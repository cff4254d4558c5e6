"""Variables that a library shares by their names: of two libraries in one scope, the dynamic linker binds both to one.

Read from the library on this machine: its dynamic symbols and relocations (ELF of 64 bits). The bytes are untrusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pytracer.decode.files import MIB, Window, regular_file
from pytracer.decode.symbols.elf_sections import Elf, NotElf, Section
from pytracer.decode.symbols.symbolize import DYNAMIC_SYMBOLS, symbol_table

_SYMBOL, _RELOCATION, _ENTRY = struct.Struct("<IBBHQQ"), struct.Struct("<QQq"), struct.Struct("<qQ")
_RELOCATIONS, _DYNAMIC = 4, 6  # SHT_RELA, SHT_DYNAMIC
_OBJECT, _GLOBAL, _VISIBILITY = 1, 1, 3  # STT_OBJECT, STB_GLOBAL, the bits of STV_*
_SYMBOLIC, _FLAGS, _NEEDED, _DF_SYMBOLIC = 16, 30, 1, 2  # DT_*, DF_SYMBOLIC
_ABSOLUTE = 0xFFF1  # SHN_ABS
_LARGEST_TABLE = 8 * MIB


class SharedVariable(NamedTuple):
    """`addr`: in the file. A weak or unique one is meant to be shared, and is none."""

    name: str
    addr: int
    nbytes: int


class SharedVariables(NamedTuple):
    """Of a library: what it defines and uses by name. `needed`: the libraries that it names."""

    variables: tuple[SharedVariable, ...] = ()
    needed: tuple[str, ...] = ()


def shared_variables(path: str, build_id: str | None) -> SharedVariables:
    """Empty where the library is not here, is another one, or binds its own variables to itself (`-Bsymbolic`)."""
    if build_id is None or not path.startswith("/"):
        return SharedVariables()
    try:
        with regular_file(path, follow=True) as file:
            elf = Elf(Window(file))
            return _of(elf) if elf.build_id() == build_id else SharedVariables()
    except (OSError, NotElf, struct.error, IndexError, ValueError):
        return SharedVariables()  # as on a machine without the library


def _of(elf: Elf) -> SharedVariables:
    table = symbol_table(elf, DYNAMIC_SYMBOLS)
    dynamic = next(elf.of_type(_DYNAMIC), None)
    if table is None or dynamic is None or table.nbytes > _LARGEST_TABLE:
        return SharedVariables()
    tags = [*_rows(elf, dynamic, _ENTRY)]
    if any(tag == _SYMBOLIC or (tag == _FLAGS and value & _DF_SYMBOLIC) for tag, value in tags):
        return SharedVariables()
    used = _used(elf)
    found = [
        SharedVariable(elf.string_of(table, name), value, size)
        for number, (name, info, other, section, value, size) in enumerate(_rows(elf, table, _SYMBOL))
        if info == _GLOBAL << 4 | _OBJECT and not other & _VISIBILITY and 0 < section < _ABSOLUTE
        if size and number in used
    ]
    return SharedVariables(tuple(found), tuple(elf.string_of(dynamic, at) for tag, at in tags if tag == _NEEDED))


def _used(elf: Elf) -> set[int]:
    """The symbols that relocations name; of all their tables together, only the first bytes are read."""
    found, left = set[int](), _LARGEST_TABLE
    for item in elf.of_type(_RELOCATIONS):
        if left < _RELOCATION.size:
            break
        found.update(info >> 32 for _, info, _ in _rows(elf, item, _RELOCATION, left))
        left -= max(item.nbytes, _RELOCATION.size)
    return found


def _rows(
    elf: Elf, section: Section, row: struct.Struct, most_bytes: int = _LARGEST_TABLE
) -> Iterator[tuple[int, ...]]:
    content = elf.content(section).read(0, most_bytes)
    return row.iter_unpack(content[: len(content) // row.size * row.size])
