"""File, line and inlined functions of native addresses, from the debug information of an image; extra `symbols`.

Debug information is large and untrusted: a child of this file parses it with the library `symbolic`, with kernel limits
on its time and memory. Without that library, or without debug information, there are no lines.

The child also runs this file, without anything else of this package.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Protocol

_CPU_SECONDS = 4  # of all images of a job; 100 MB of debug information take about one
_ADDRESS_BYTES = 1 << 30  # beside the image itself
_WAIT_SECONDS = 30.0  # for a machine that is busy with other things
_MOST_INLINED = 64
_Row = tuple[str, "str | None", "int | None"]  # function, file, line
Rows = dict[int, tuple[_Row, ...]]


class _Place(Protocol):
    """symbolic's SourceLocation."""

    symbol: str
    full_path: str
    line: int


class _Cache(Protocol):
    """symbolic's SymCache."""

    def lookup(self, addr: int) -> Sequence[_Place]:
        """The functions at an address, the innermost first."""


def is_available() -> bool:
    """Whether `symbolic` is installed."""
    return bool(sys.executable) and importlib.util.find_spec("symbolic") is not None


class SourceLines:
    """Asks for the lines of a job's images, one child for each, for a bounded time in all."""

    def __init__(self) -> None:
        self._available = is_available()
        self._seconds_left = float(_CPU_SECONDS)

    @property
    def wanted(self) -> bool:
        """Whether there is any use in asking."""
        return self._available and self._seconds_left > 0

    def of(self, fd: int, addresses: Iterable[int]) -> Rows:
        """For each address that has lines: functions inlined there, the innermost first, then the function itself.

        Args:
            fd: an open image with debug information. Stays open.
            addresses: relative to the lowest address that the image is linked for; 0 for libraries.
        """
        if not self.wanted:
            return {}
        question = json.dumps(sorted(addresses)).encode()
        seconds = max(1, round(self._seconds_left))
        before = _children_seconds()
        try:
            done = subprocess.run(
                [sys.executable, "-I", __file__, str(fd), str(seconds)], input=question, pass_fds=(fd,),
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", env={}, timeout=_WAIT_SECONDS, check=True,
            )  # fmt: skip
            answer: dict[str, list[list[object]]] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return {}
        finally:
            self._seconds_left -= _children_seconds() - before
        return {int(address): tuple(map(_row, rows)) for address, rows in answer.items()}


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(values: list[object]) -> _Row:
    function, file, line = values
    return str(function), str(file) if file else None, line if isinstance(line, int) and line > 0 else None


def _serve(fd: int, seconds: int) -> None:
    """The child: addresses on stdin as a JSON list, rows on stdout by address."""
    nbytes = os.fstat(fd).st_size + _ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = rows_at(parsed(fd), json.load(sys.stdin))
    json.dump(found, sys.stdout)


def parsed(fd: int) -> _Cache:
    """All debug information of an open image, as symbolic's SymCache; in memory, so that the file may change."""
    archive = importlib.import_module("symbolic.debuginfo").Archive.open(f"/proc/self/fd/{fd}")
    cache: _Cache = next(iter(archive.iter_objects())).make_symcache()
    return cache


def rows_at(cache: _Cache, addresses: Iterable[int]) -> Rows:
    """What `SourceLines.of` returns, of a SymCache."""
    found: Rows = {}
    for address in addresses:
        places = [item for item in cache.lookup(address)[:_MOST_INLINED] if item.symbol]
        if any(item.full_path for item in places):
            found[address] = tuple(_row([item.symbol, item.full_path, item.line]) for item in places)
    return found


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
