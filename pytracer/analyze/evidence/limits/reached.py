"""Which limit an exception came of: the one whose number in use leaves no room for what was asked for."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.limits.numbers import (
    ADDRESS_SPACE,
    DATA,
    FILE_SIZE,
    FILES,
    MAPPINGS,
    PIDS,
    STACK,
    USER_THREADS,
    Numbers,
)
from pytracer.report.job import ExceptionReport, PythonFrame

MACHINE = "machine"
MAYBE = "a file that is gone"
_ERRNO = Pattern(r"^\[Errno (\d{1,3})\]")
_ASKED = Pattern(r"tried to allocate (\d{1,19}) bytes|[Uu]nable to mmap (\d{1,19}) bytes")
_ASKED_WORDS = Pattern(r"Unable to allocate ([\d.]{1,12}) ?(bytes|KiB|MiB|GiB|TiB|PiB)\b")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
_MEMORY = Pattern(
    r"[Cc]an(?:no|')t allocate memory|[Nn]ot enough memory|[Uu]nable to (?:allocate|mmap)|bad_alloc"
    r"|failed to map segment"
)
_OF_FILES = Pattern(r"[Tt]oo many open files|0 items of ancdata")
_OF_THREADS = Pattern(r"start new thread|pthread_create")
_OF_SIZE = Pattern(r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+")
_POSITION = Pattern(r"unexpected pos (\d{1,19}) vs")
_PER_PART = 4  # of a checkpoint, how much more may be missing than was written, in one part
_FORKS = (
    *(f"/{name}/popen_{how}.py" for name in ("multiprocessing", "multiprocess") for how in ("fork", "spawn_posix")),
    "subprocess.py",
    "pty.py",
)
_STACK_BYTES = 8 << 20  # where the stack has no limit, glibc takes 2 MiB on x86-64; more is no claim
_NEARLY = 0.98
_SMALL, _PLENTY = 1 << 20, 1 << 30  # bytes
_MOSTLY = 0.9
_SPARE_FILES = 3
SPARE_MAPPINGS = 64


class Reached(msgspec.Struct, frozen=True):
    """`asked`: the bytes of the failed request, where the message has them. `matter`: what was asked for.

    `machine`: the memory that it has, of a limit of the stack that is larger.
    """

    name: str
    limit: int
    used: int | None
    matter: str
    asked: int | None = None
    machine: int | None = None


def reached_limit(exception: ExceptionReport, stack: Sequence[PythonFrame], numbers: Numbers) -> Reached | None:
    """None where what is in use leaves room, or nothing is known of it."""
    message = exception.message or ""
    found = _ERRNO.match(message)
    number = int(found[1]) if found is not None else None
    kind = (exception.type or "").rpartition(".")[2]
    if number == errno.EMFILE or _OF_FILES.search(message):
        return _files(numbers)
    if number == errno.EFBIG or _OF_SIZE.search(message):
        return _size(numbers, _POSITION.search(message), sure=number == errno.EFBIG)
    if _OF_THREADS.search(message) or (number == errno.EAGAIN and _forked(stack)):
        return _threads(numbers, "thread" if number is None else "process")
    if number == errno.ENOMEM or kind in ("MemoryError", "_ArrayMemoryError") or _MEMORY.search(message):
        return _memory(numbers, asked_bytes(message))
    return None


def mostly_files(exception: ExceptionReport, numbers: Numbers) -> Reached | None:
    """Of descriptors that ran out and were closed on the way: where one kind of file has half of all still."""
    limit, files = numbers.limit(FILES), numbers.files
    if not _OF_FILES.search(exception.message or "") or limit is None or files is None or files[0] * 2 < limit:
        return None
    return Reached(FILES, limit, numbers.used(FILES), "descriptor")


def has_spare_files(used: int, limit: int) -> bool:
    """Whether more descriptors are left than are open for a moment only."""
    return used < limit - max(_SPARE_FILES, limit - int(limit * _NEARLY))


def asked_bytes(message: str) -> int | None:
    """How much an allocation asked for; at least, where the message rounds."""
    exact = _ASKED.search(message)
    if exact is not None:
        return int(exact[1] or exact[2])
    words = _ASKED_WORDS.search(message)
    try:
        return int(float(words[1]) * _UNITS[words[2]]) if words is not None else None
    except ValueError:
        return None


def _forked(stack: Sequence[PythonFrame]) -> bool:
    """A socket that has nothing to read gives the same error number."""
    return bool(stack) and (stack[0].file or "").endswith(_FORKS)


def _files(numbers: Numbers) -> Reached | None:
    limit, used = numbers.limit(FILES), numbers.used(FILES)
    if limit is None or used is None or has_spare_files(used, limit):
        return None
    return Reached(FILES, limit, used, "descriptor")


def _size(numbers: Numbers, position: re.Match[str] | None, *, sure: bool) -> Reached | None:
    """Only where the file, if it is known, is as large as the limit allows; other messages need to know it.

    Of a file that is gone, as that of a temporary folder, `position` of the message has how much was written.
    """
    limit, size = numbers.limit(FILE_SIZE), numbers.values.get("file size")
    if limit is not None and size is None and position is not None:
        return (
            Reached(FILE_SIZE, limit, None, MAYBE)
            if int(position[1]) <= limit <= _PER_PART * int(position[1])
            else None
        )
    if limit is None or (size is None and not sure) or (size is not None and size < limit * _NEARLY):
        return None
    return Reached(FILE_SIZE, limit, size, "file")


def _threads(numbers: Numbers, matter: str) -> Reached | None:
    pids, used = numbers.limit(PIDS), numbers.used(PIDS)
    if pids is not None and used is not None and used >= pids * _NEARLY - 1:
        return Reached(PIDS, pids, used, matter)
    if matter == "thread":
        stack = numbers.limit(STACK) or _STACK_BYTES
        space, held = numbers.limit(ADDRESS_SPACE), numbers.used(ADDRESS_SPACE)
        if space is not None and held is not None and held + stack > space:
            return Reached(ADDRESS_SPACE, space, held, matter, stack)
        machine = numbers.values.get("machine memory")
        if machine is not None and stack > machine:
            return Reached(STACK, stack, None, matter, machine=machine)
        mapped = _mappings(numbers, matter, None)
        if mapped is not None:
            return mapped
    most, own = numbers.limit(USER_THREADS), numbers.used("threads")
    if most is not None and own is not None and own >= most * _MOSTLY:
        return Reached(USER_THREADS, most, own, matter)
    return None


def _memory(numbers: Numbers, asked: int | None) -> Reached | None:
    peaks = {ADDRESS_SPACE: numbers.values.get("peak address space")}
    for name in (ADDRESS_SPACE, DATA):
        limit, used = numbers.limit(name), numbers.used(name)
        if limit is None or used is None:
            continue
        if asked is not None and used + asked > limit:
            return Reached(name, limit, used, "memory", asked)
        most = peaks.get(name)  # what was in use is given back by the exception: the locals of what it left
        left = numbers.values.get("machine memory left")
        if asked is not None and most is not None and most + asked > limit and left is not None and left > asked:
            return Reached(name, limit, most, "memory", asked)
        if asked is None and max(used, peaks.get(name) or 0) >= limit * _MOSTLY:
            return Reached(name, limit, max(used, peaks.get(name) or 0), "memory")
    total = numbers.values.get("machine memory")
    return _mappings(numbers, "memory", asked) or (
        Reached(MACHINE, total, None, "memory", asked) if total is not None and asked is not None and asked > total
        else None
    )  # fmt: skip


def _mappings(numbers: Numbers, matter: str, asked: int | None) -> Reached | None:
    limit, used = numbers.limit(MAPPINGS), numbers.used(MAPPINGS)
    if limit is None or used is None:
        return None
    left, small = numbers.values.get("machine memory left"), asked is not None and asked < _SMALL
    released = small and left is not None and left > _PLENTY  # by the exception: a part of a batch that was received
    if used < (limit * _NEARLY if released else limit - SPARE_MAPPINGS):
        return None
    return Reached(MAPPINGS, limit, used, matter, asked)
