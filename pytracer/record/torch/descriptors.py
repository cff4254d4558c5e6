"""A few more file descriptors for a moment, where an exception says that they have run out.

Importing a module and reading /proc need one. Loaded when recording starts, for the same reason; `resource` is not
used, because its import would need one, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import threading
from collections.abc import Iterator

OPEN_FILES = 7  # RLIMIT_NOFILE
INFINITE = ctypes.c_ulong(-1).value
_MESSAGES = ("Too many open files", "too many open files", "0 items of ancdata")
_CHAIN = 4
_MORE = 64
_FEW = 4096  # below many limits of containers: each process that imports torch pays for those imports

_alone = threading.Lock()


class Limit(ctypes.Structure):
    """struct rlimit of getrlimit(2), on 64-bit systems."""

    _fields_ = (("soft", ctypes.c_ulong), ("hard", ctypes.c_ulong))


def chain(error: BaseException) -> list[BaseException]:
    """The exception, and what it was raised for or while handling."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and len(found) < _CHAIN:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def message_of(error: BaseException) -> str:
    """The first text that it was made with; no __str__ of a program's class runs."""
    given = vars(BaseException)["args"].__get__(error)
    return next((item for item in given if type(item) is str), "")


_before: Limit | None = None  # as the program has it, while there is room


def may_lack_room() -> bool:
    """Whether descriptors may run out where the limit cannot be raised."""
    limit = get_limit(OPEN_FILES)
    return limit is not None and limit.soft == limit.hard and limit.soft <= _FEW


@contextlib.contextmanager
def room_for_files(error: BaseException) -> Iterator[None]:
    """The limit is put back after it. Without permission to raise it nothing changes."""
    global _before
    wanted = any(map(_ran_out, chain(error))) and _alone.acquire(blocking=False)
    before = get_limit(OPEN_FILES) if wanted else None
    try:
        if before is not None and before.soft != INFINITE:
            more = before.soft + _MORE
            if _set_limit(OPEN_FILES, Limit(more, max(more, before.hard))):  # the hard one only as root
                _before = before
        yield
    finally:
        if _before is not None and wanted:
            _set_limit(OPEN_FILES, _before)
            _before = None
        if wanted:
            _alone.release()


def errno_of(error: BaseException) -> object:
    """None of what is no OSError."""
    return vars(OSError)["errno"].__get__(error) if isinstance(error, OSError) else None


def get_limit(number: int) -> Limit | None:
    """The program's own; None where the kernel does not know it."""
    if number == OPEN_FILES and _before is not None:
        return _before
    limit = Limit()
    return limit if ctypes.CDLL(None).getrlimit(ctypes.c_int(number), ctypes.byref(limit)) == 0 else None


def _set_limit(number: int, limit: Limit) -> bool:
    return bool(ctypes.CDLL(None).setrlimit(ctypes.c_int(number), ctypes.byref(limit)) == 0)


def _ran_out(error: BaseException) -> bool:
    if errno_of(error) == errno.EMFILE:
        return True
    return any(words in message_of(error) for words in _MESSAGES)
