"""Our C interfaces, through ctypes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

CType = type[object]  # one of ctypes, whose types have no common public base


class Function(NamedTuple):
    """One function; `result` None: it returns nothing."""

    name: str
    result: CType | None
    arguments: tuple[CType, ...] = ()


def load(path: Path) -> ctypes.PyDLL:
    """Loads a library whose functions are called with the GIL held; errors of Python that they set are raised.

    Raises:
        OSError: it does not exist, is damaged, or does not load.
    """
    with path.open("rb") as file:
        header, nbytes = file.read(64), os.fstat(file.fileno()).st_size
    # The linker maps a truncated file without complaint, and what is missing would be the job's SIGBUS. The table of
    # sections is the end of a file.
    if len(header) == 64 and header.startswith(b"\x7fELF"):
        table_offset, entry_bytes, entries = struct.unpack_from("<Q10xHH", header, 40)
        if table_offset + entry_bytes * entries > nbytes:
            raise OSError(f"{path}: the file is truncated")
    return ctypes.PyDLL(os.fspath(path))


def declare(library: ctypes.CDLL, prefix: str, functions: Sequence[Function]) -> None:
    """Each as `library.<prefix><name>`; ctypes would take every result for an int.

    Raises:
        AttributeError: the library has no such function.
    """
    for function in functions:
        found = getattr(library, prefix + function.name)
        found.restype, found.argtypes = function.result, function.arguments
