"""Work that does not end: a loop of Python's, one of a C function, or a sleep."""

from __future__ import annotations

import ctypes
import sys
import time


def sample(count: int) -> set[int]:
    chosen: set[int] = set()
    while len(chosen) < count:
        chosen.add(len(str(chosen)) % 2)
    return chosen


def pack(library: str) -> int:
    return ctypes.CDLL(library).pack(600, 512)


def rest() -> None:
    while len(sys.argv) > 1:
        time.sleep(0.2)


if sys.argv[1] == "loop":
    sample(5)
elif sys.argv[1] == "native":
    pack(sys.argv[2])
else:
    rest()
