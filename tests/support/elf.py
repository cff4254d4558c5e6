"""A minimal ELF image by hand: section headers, one load segment, symbols, build id."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

FUNC, OBJECT, GLOBAL, LOCAL = 2, 1, 1, 0
Symbol = tuple[str, int, int]  # name, address, size


def image(
    symbols: Sequence[Symbol] = (),
    dynamic: Sequence[Symbol] = (),
    build_id: bytes = b"",
    *,
    segment: tuple[int, int, int] = (0, 0, 0x10000),
    objects: Sequence[Symbol] = (),
) -> bytes:
    """`segment` is (file offset, address, size); `objects` are data symbols, which are not functions."""
    sections: list[tuple[str, int, int, int, bytes]] = []  # name, type, link, entry size, content

    def table(name: str, kind: int, strings_name: str, entries: list[tuple[Symbol, int]]) -> None:
        strings, content = b"\0", struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
        for (symbol, address, size), sort in entries:
            content += struct.pack("<IBBHQQ", len(strings), GLOBAL << 4 | sort, 0, 1, address, size)
            strings += symbol.encode() + b"\0"
        sections.append((name, kind, len(sections) + 2, 24, content))
        sections.append((strings_name, 3, 0, 0, strings))

    if symbols or objects:
        table(".symtab", 2, ".strtab", [(s, FUNC) for s in symbols] + [(s, OBJECT) for s in objects])
    if dynamic:
        table(".dynsym", 11, ".dynstr", [(s, FUNC) for s in dynamic])
    if build_id:
        note = struct.pack("<III4s", 4, len(build_id), 3, b"GNU\0") + build_id
        sections.append((".note.gnu.build-id", 7, 0, 0, note))
    names = b"\0"
    headers = bytes(64)
    body = b""
    start = 64 + 56
    for name, kind, link, entry, content in [*sections, (".shstrtab", 3, 0, 0, None)]:
        offset = len(names)
        names += name.encode() + b"\0"
        data = names if content is None else content
        headers += struct.pack("<IIQQQQIIQQ", offset, kind, 0, 0, start + len(body), len(data), link, 0, 8, entry)
        body += data + bytes(-len(data) % 8)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, start + len(body), 0, 64, 56, 1, 64, len(sections) + 2, len(sections) + 1
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, segment[0], segment[1], segment[1], segment[2], segment[2], 4096)
    return head + load + body + headers


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
