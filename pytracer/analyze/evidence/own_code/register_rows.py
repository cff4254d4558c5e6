"""Rows of the arrays that a line passes, at whose beginning a register points: what native code was working on."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from pytracer._text import list_words
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.own_code.arrays import held_array
from pytracer.analyze.evidence.own_code.passed_memory import pointers
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash, HeldArray, records_values

_FORMATS = {"float64": "d", "float32": "f", "int64": "q", "int32": "i"}
_MOST_NUMBERS, _MOST_ROWS = 8, 2


def register_rows(view: ProcessView) -> str | None:
    """`dets[2] is (0.41, -0.22, 0.3), where rbx points`: of two-dimensional arrays in a row."""
    crash = view.crash
    if crash is None or not records_values(view.process.snapshot):
        return None
    found = [words for name, numpy, _ in pointers(view) if numpy for words in _rows(view, crash, name)]
    return list_words(found[:_MOST_ROWS]) if found else None


def _rows(view: ProcessView, crash: Crash, name: str) -> Iterator[str]:
    array = held_array(view, name)
    if array is None or len(array.shape) != 2 or array.in_a_row is not True or array.dtype not in _FORMATS:
        return
    nbytes = array.shape[1] * (array.element_bytes or 0)
    for register, value in data_registers(crash).items():
        row, left = divmod(value - array.data, nbytes) if nbytes else (0, 1)
        if left or not 0 <= row < array.shape[0]:
            continue
        numbers = _numbers(crash, array, value)
        if numbers is not None:
            values = ", ".join(f"{item:.4g}" for item in numbers)
            yield f"`{name}[{row}]` is ({values}), where {register} points"
            return


def _numbers(crash: Crash, array: HeldArray, addr: int) -> list[float] | None:
    """Those of a row; None where one of them was not recorded, or is no number."""
    count, nbytes = array.shape[1], array.element_bytes or 0
    for block in crash.memory:
        at = addr - block.addr
        if at >= 0 and at + count * nbytes <= len(block.content) and 0 < count <= _MOST_NUMBERS:
            code = f"<{count}{_FORMATS[array.dtype or '']}"
            numbers = [*struct.unpack_from(code, block.content, at)]
            return numbers if all(math.isfinite(item) for item in numbers) else None
    return None
