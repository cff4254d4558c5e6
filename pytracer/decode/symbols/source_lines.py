"""File, line and inlined functions of native addresses, from the debug information of an image; extra `symbols`.

Debug information is large and untrusted: a child process parses it with the library `symbolic`, with kernel limits on
its time and memory. Without that library, or without debug information, there are no lines.

The child also runs this file, without anything else of this package.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import socket
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
    """Asks for the lines of a job's images, for a bounded time in all.

    One child answers for all images; when one of them ends it, the next image gets another child.
    """

    def __init__(self) -> None:
        self._available = is_available()
        self._seconds_left = float(_CPU_SECONDS)
        self._child: _Child | None = None

    def __enter__(self) -> SourceLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()

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
        try:
            if self._child is None:
                self._child = _Child(max(1, round(self._seconds_left)))
            answer = self._child.ask(fd, sorted(addresses))
        except (OSError, ValueError):
            if self._child is not None:
                self._seconds_left -= self._child.end()
                self._child = None
            return {}
        return {int(address): tuple(map(_row, rows)) for address, rows in answer.items()}


class _Child:
    """A process that parses debug information, for so many seconds of CPU time."""

    def __init__(self, seconds: int) -> None:
        self._socket, its = socket.socketpair()
        self._socket.settimeout(_WAIT_SECONDS)
        self._answers = self._socket.makefile("rb")
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-I", __file__, str(its.fileno()), str(seconds)], pass_fds=(its.fileno(),),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", env={},
            )  # fmt: skip

    def ask(self, fd: int, addresses: list[int]) -> dict[str, list[list[object]]]:
        """Rows by address.

        Raises:
            OSError, ValueError: it has ended, or takes too long. It must not be asked again.
        """
        socket.send_fds(self._socket, [b"?"], [fd])
        self._socket.sendall(json.dumps(addresses).encode() + b"\n")
        answer: dict[str, list[list[object]]] = json.loads(self._answers.readline())
        return answer

    def end(self) -> float:
        """Ends it; returns the seconds of CPU time that it took."""
        before = _children_seconds()
        self._answers.close()
        self._socket.close()
        self._process.kill()
        self._process.wait()
        return _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(values: list[object]) -> _Row:
    function, file, line = values
    return str(function), str(file) if file else None, line if isinstance(line, int) and line > 0 else None


def _serve(channel: socket.socket, seconds: int) -> None:
    """The child: for each image its descriptor, and a line with addresses as a JSON list; rows by address as a line."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    questions = channel.makefile("rb")
    while (fds := socket.recv_fds(channel, 1, 1)[1]) and (question := questions.readline()):
        found = _lines_of(fds[0], json.loads(question))
        os.close(fds[0])
        channel.sendall(json.dumps(found).encode() + b"\n")


def _lines_of(fd: int, addresses: list[int]) -> Rows:
    """With memory for this image only. Whatever is wrong with it costs its own lines."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    nbytes = os.fstat(fd).st_size + _ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (nbytes if hard == resource.RLIM_INFINITY else min(nbytes, hard), hard))
    try:
        return rows_at(parsed(fd), addresses)
    except Exception:  # a library's: SymbolicError, MemoryError, StopIteration for an archive of nothing
        return {}


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
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
