"""Bytes to values, driven by `schema.py` alone."""

from __future__ import annotations

import re
import struct
from functools import cache
from mmap import mmap
from typing import Any

from pytracer.blackbox.schema import Struct

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q"}
_ARRAY = re.compile(r"(\w+)\[(\d+)\]")


class Layout:
    """Offsets and formats of one structure.

    Decoding yields a dict: integers, `str` for `char[N]` (cut at the first NUL), `bytes` for `u8[N]`, tuples for
    other arrays.
    """

    def __init__(self, definition: Struct) -> None:
        self.name = definition.name
        self.nbytes = definition.nbytes
        self.offsets: dict[str, int] = {}
        fmt = "<"
        self._parts: list[tuple[str, str, int]] = []
        offset = 0
        for field in definition.fields:
            kind, count = split_type(field.type)
            item = 1 if kind == "char" else struct.calcsize("<" + _CODES[kind])
            if offset % item:
                raise AssertionError(f"{self.name}.{field.name} is not naturally aligned")
            self.offsets[field.name] = offset
            if kind == "char" or (kind == "u8" and count):
                fmt += f"{count}s"
                self._parts.append((field.name, "text" if kind == "char" else "bytes", 1))
                offset += count
            else:
                fmt += f"{count or 1}{_CODES[kind]}"
                self._parts.append((field.name, "array" if count else "scalar", count or 1))
                offset += item * (count or 1)
        if offset != self.nbytes:
            raise AssertionError(f"{self.name} declares {self.nbytes} bytes, its fields take {offset}")
        self._struct = struct.Struct(fmt)

    def decode(self, data: bytes | memoryview | mmap, offset: int = 0) -> dict[str, Any]:
        """Decodes one structure at `offset`; raises `struct.error` when it does not fit."""
        values = self._struct.unpack_from(data, offset)
        out: dict[str, Any] = {}
        i = 0
        for name, how, count in self._parts:
            if how == "array":
                out[name] = values[i : i + count]
                i += count
                continue
            value = values[i]
            i += 1
            if how == "text":
                value = value.split(b"\0", 1)[0].decode("utf-8", "replace")
            out[name] = value
        return out


def split_type(text: str) -> tuple[str, int]:
    """`"u64[4]"` to `("u64", 4)`; a scalar has count 0."""
    match = _ARRAY.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, 0)


@cache
def layout(definition: Struct) -> Layout:
    """The layout of a structure, computed once."""
    return Layout(definition)
