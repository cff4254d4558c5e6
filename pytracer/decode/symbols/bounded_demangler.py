"""The C++ library's demangler, in a child process for names that may grow without bound.

A mangled name is a small program: it refers to its earlier parts, and each reference may double the result. The library
accepts no limit and cannot be interrupted. So a child handles such names, with kernel limits on its time and memory; if
it dies, the name stays mangled. One in ten of libtorch's names is such.

The child also runs this file, without anything else of this package.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import ctypes.util
import os
import resource
import select
import subprocess
import sys
from collections.abc import Callable

LONGEST = 1 << 16  # characters of a result; the longest of libtorch's has 4,000
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib", "libc++.1.dylib")
_CPU_SECONDS = 1  # for a name; a usual one takes 0.02 ms
_ADDRESS_BYTES = 256 << 20
_WAIT_SECONDS = 10.0  # for a machine that is busy with other things
_MOST_DEATHS = 2
_END = b"\0"


class _Child:
    """The process, started at the first name; after two deaths no more names are tried."""

    def __init__(self) -> None:
        self._deaths = 0
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, name: bytes) -> bytes | None:
        if self._deaths >= _MOST_DEATHS or not sys.executable:
            return None
        try:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, bufsize=0, cwd="/", env={},
                )  # fmt: skip
                atexit.register(self.end)
            answer = _exchange(self._process, name)
        except OSError:
            answer = None
        if answer is None:
            self._deaths += 1
            self.end()
        return answer

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(OSError):
            process.communicate()


def _exchange(process: subprocess.Popen[bytes], name: bytes) -> bytes | None:
    """One question and its answer; None when there is no answer."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(name + _END)
    answer = bytearray()
    while not answer.endswith(_END):
        ready, _, _ = select.select([process.stdout], [], [], _WAIT_SECONDS)
        part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if not part or len(answer) > 4 * LONGEST:
            return None
        answer += part
    return bytes(answer[:-1])


_child = _Child()


def demangle(name: str) -> str | None:
    """As the library does it, in the child; None for what cannot be read or takes too much."""
    raw = name.encode("utf-8", "replace")
    return (_child.ask(raw) or b"").decode("utf-8", "replace") or None if _END not in raw else None


def load() -> Callable[[str], str | None] | None:
    """`__cxa_demangle` of this machine's C++ library; None when there is none."""
    for candidate in (*_LIBRARIES, ctypes.util.find_library("stdc++")):
        if candidate is None:
            continue
        try:
            return _bind(ctypes.CDLL(candidate), ctypes.CDLL(None))
        except (OSError, AttributeError):
            continue
    return None


def _bind(library: ctypes.CDLL, c_library: ctypes.CDLL) -> Callable[[str], str | None]:
    cxa, free = library.__cxa_demangle, c_library.free
    cxa.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    cxa.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    free.restype = None

    def call(name: str) -> str | None:
        status = ctypes.c_int(1)
        pointer = cxa(name.encode("utf-8", "replace"), None, None, ctypes.byref(status))
        if not pointer:
            return None
        try:
            value = ctypes.string_at(pointer)
        finally:
            free(pointer)
        return value.decode("utf-8", "replace") if status.value == 0 else None

    return call


def _serve() -> None:
    """The child: names on stdin, results on stdout, each ended by a NUL."""
    demangler = load()
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rest = b""
    while part := os.read(0, 1 << 16):
        *names, rest = (rest + part).split(_END)
        for name in names:
            used = resource.getrusage(resource.RUSAGE_SELF)
            seconds = int(used.ru_utime + used.ru_stime) + 1 + _CPU_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
            full = (demangler(name.decode("utf-8", "replace")) if demangler else None) or ""
            answer = (full if len(full) <= LONGEST else "").encode("utf-8", "replace") + _END
            while answer:
                answer = answer[os.write(1, answer) :]


if __name__ == "__main__":
    _serve()
