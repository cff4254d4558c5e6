"""The space that finished recordings take: pages of zeros are given back to the file system, without loss.

A recording is preallocated, so that the recorder never faults on a full disk; most of it stays empty. Once its process
has ended, the empty pages are turned into holes: every reader sees the same bytes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytracer.launcher.run_directory import boot_id, start_ticks

if TYPE_CHECKING:
    from pytracer.blackbox.structures import FileHeader

_PUNCH_HOLE, _KEEP_SIZE = 2, 1  # linux/falloc.h
_PAGE = 4096
_AT_ONCE = 1 << 20


class BoxState(NamedTuple):
    """Who wrote a recording, and whether that process may still do so."""

    host: str
    boot_id: str
    pid: int
    alive: bool


def box_state(path: Path) -> BoxState | None:
    """None for a file that is no recording, or that cannot be read."""
    # Imported here: the launcher stays small while the job runs.
    from pytracer.blackbox.codec import decode, layout_of
    from pytracer.blackbox.schema import MAGIC
    from pytracer.blackbox.structures import FileHeader

    nbytes = layout_of(FileHeader).nbytes
    try:
        with open(path, "rb", opener=_opened) as file:
            data = file.read(nbytes)
            written = _is_open_for_writing(file.fileno())
        if len(data) < nbytes or not data.startswith(MAGIC):
            return None
        header = decode(FileHeader, data)
    except (OSError, ValueError, KeyError):
        return None
    return BoxState(header.host, header.boot_id, header.pid, written or _lives(header))


def shrink_box(path: Path) -> int:
    """Gives the empty pages of a finished recording back; returns how many bytes. 0 where that is not possible."""
    state = box_state(path)
    if state is None or state.alive:
        return 0
    try:
        with open(path, "r+b", opener=_opened) as file:
            before = os.fstat(file.fileno()).st_blocks
            for offset, nbytes in _empty(file.fileno()):
                _punch(file.fileno(), offset, nbytes)
            return max(0, before - os.fstat(file.fileno()).st_blocks) * 512
    except OSError:  # a file system without holes, or one that is full: the recording stays as it is
        return 0


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _empty(file: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole pages that hold zeros only: what was never written, and pages of zeros in between."""
    nbytes, begin = os.fstat(file).st_size, 0
    for start, end in _written(file, nbytes):
        for offset in range(start, end, _AT_ONCE):
            part = os.pread(file, min(_AT_ONCE, end - offset), offset)
            for at in range(0, len(part), _PAGE):
                page = part[at : at + _PAGE]
                if page.count(0) != len(page):
                    if offset + at > begin:
                        yield begin, offset + at - begin
                    begin = offset + at + len(page)
    if nbytes > begin:
        yield begin, nbytes - begin


def _written(file: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Ranges that may hold anything but zeros, in whole pages; all of it where the file system does not know."""
    end = 0
    while end < nbytes:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = min(nbytes, os.lseek(file, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but holes from here on
                return
            start, end = end, nbytes
        yield start // _PAGE * _PAGE, end


def _punch(file: int, offset: int, nbytes: int) -> None:
    """Raises OSError where the file system cannot."""
    import ctypes  # imported here, likewise

    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.fallocate(file, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(nbytes))
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _is_open_for_writing(file: int) -> bool:
    """Whether any process has it open for writing or mapped so, in any pid namespace of this machine.

    The kernel grants a read lease only if none has. Where leases do not exist, the process table decides alone. Whoever
    opens the file meanwhile waits for microseconds. The signal about that goes to any thread, and SIGIO would end this
    process: SIGURG is ignored.
    """
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _lives(header: FileHeader) -> bool:
    """Whether the process that wrote it is in this process table: same boot, pid and start time."""
    return header.boot_id == boot_id() and header.pid > 0 and start_ticks(header.pid) == header.start_ticks
