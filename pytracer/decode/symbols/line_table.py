"""Line tables of CPython code objects: instruction offset to line number.

The formats are those of `Objects/lnotab_notes.txt` (3.10) and `Objects/locations.md` (3.11 to 3.14).
"""

from __future__ import annotations


def line_of(table: bytes, python_minor: int, first_line: int, offset: int) -> int | None:
    """The line of the instruction at `offset` (bytes), or None if the table has none.

    A frame that has not started yet has a negative offset and is on its first line, as in CPython.
    """
    if offset < 0:
        return first_line
    try:
        return (_line_310 if python_minor == 10 else _line_311)(table, first_line, offset)
    except IndexError:  # the table is cut off
        return None


def _line_310(table: bytes, line: int, offset: int) -> int | None:
    end = 0
    for i in range(0, len(table) - 1, 2):
        end += table[i]
        delta = table[i + 1] - 256 if table[i + 1] > 127 else table[i + 1]
        if delta != -128:
            line += delta
        if offset < end:
            return None if delta == -128 else line
    return None


def _line_311(table: bytes, line: int, offset: int) -> int | None:
    i = end = 0
    while i < len(table):
        code = table[i] >> 3 & 15
        end += ((table[i] & 7) + 1) * 2
        i += 1
        if code == 14:
            delta, i = _signed(table, i)
            line += delta
            for _ in range(3):
                _, i = _varint(table, i)
        elif code == 13:
            delta, i = _signed(table, i)
            line += delta
        elif 10 <= code <= 12:
            line += code - 10
            i += 2
        elif code < 10:
            i += 1
        if offset < end:
            return None if code == 15 else line
    return None


def _varint(table: bytes, i: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = table[i]
        i += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            return value, i


def _signed(table: bytes, i: int) -> tuple[int, int]:
    value, i = _varint(table, i)
    return (-(value >> 1) if value & 1 else value >> 1), i
