"""Bytes to values, driven by `schema.py` alone."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cache
from mmap import mmap
from typing import TypeVar

from pytracer.blackbox.schema import STRUCTS, Struct

T = TypeVar("T")
_BY_NAME = {item.name: item for item in STRUCTS}
_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q"}
_ARRAY = re.compile(r"(\w+)\[(\d+)\]")


class Layout:
    """Offsets and formats of one structure."""

    def __init__(self, definition: Struct) -> None:
        self.name = definition.name
        self.nbytes = definition.nbytes
        self.offsets: dict[str, int] = {}
        self._numbers: dict[str, str] = {}
        fmt = "<"
        self._parts: list[tuple[str, int]] = []
        offset = 0
        for field in definition.fields:
            kind, count = split_type(field.type)
            item = 1 if kind == "char" else struct.calcsize("<" + _CODES[kind])
            if kind != "char" and not count:
                self._numbers[field.name] = "<" + _CODES[kind]
            if offset % item:
                raise AssertionError(f"{self.name}.{field.name} is not naturally aligned")
            self.offsets[field.name] = offset
            if kind == "char" or (kind == "u8" and count):
                fmt += f"{count}s"
                self._parts.append(("text" if kind == "char" else "bytes", 1))
                offset += count
            else:
                fmt += f"{count or 1}{_CODES[kind]}"
                self._parts.append(("array" if count else "scalar", count or 1))
                offset += item * (count or 1)
        if offset != self.nbytes:
            raise AssertionError(f"{self.name} declares {self.nbytes} bytes, its fields take {offset}")
        self._struct = struct.Struct(fmt)

    def number(self, field: str, data: bytes | mmap, offset: int = 0) -> int:
        """One number of the structure at `offset`: for the launcher, as `structures.py` takes long to import."""
        return int(struct.unpack_from(self._numbers[field], data, offset + self.offsets[field])[0])

    def values(self, data: bytes | memoryview | mmap, offset: int = 0) -> list[object]:
        """The fields of one structure at `offset`, in their order.

        Integers, `str` for `char[N]` (cut at the first NUL), `bytes` for `u8[N]`, tuples for other arrays.

        Raises:
            struct.error: it does not fit.
        """
        values = self._struct.unpack_from(data, offset)
        out: list[object] = []
        i = 0
        for how, count in self._parts:
            if how == "array":
                out.append(values[i : i + count])
                i += count
                continue
            value = values[i]
            i += 1
            out.append(value.split(b"\0", 1)[0].decode("utf-8", "replace") if how == "text" else value)
        return out


def decode(kind: type[T], data: bytes | memoryview | mmap, offset: int = 0) -> T:
    """One structure of `structures.py` at `offset`; raises `struct.error` when it does not fit."""
    make: Callable[..., T] = kind
    return make(*layout_of(kind).values(data, offset))


def split_type(text: str) -> tuple[str, int]:
    """`"u64[4]"` to `("u64", 4)`; a scalar has count 0."""
    match = _ARRAY.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, 0)


@cache
def layout(definition: Struct) -> Layout:
    """The layout of a structure, computed once."""
    return Layout(definition)


def layout_of(kind: type) -> Layout:
    """The layout of a type of `structures.py`."""
    return layout(_BY_NAME[kind.__name__])
