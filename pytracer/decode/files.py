"""Opens untrusted files: the one place in the reading half that does.

The author of a recording chooses what its names refer to: a pipe that blocks an `open()` forever, a device, a link to a
private file, a file in /proc whose size is 0 and whose content is endless, a lease that blocks the opener for 45 s. So
only regular files are opened, no more is read than the size at opening, and links are followed only if the user named
them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

MIB = 1 << 20


class Refused(OSError):
    """A file that is not opened, or not read; `strerror` is the reason."""

    def __init__(self, number: int, why: str, path: str) -> None:
        super().__init__(number, why, path)


def open_regular(path: str | os.PathLike[str], most: int | None = None, *, follow: bool = False) -> int:
    """Opens a regular file for reading.

    Args:
        path: what to open.
        most: refuse files of more bytes.
        follow: also when `path` itself is a link. Only for names that the user gave, and for installed libraries.

    Returns:
        A descriptor, closed over exec; the caller closes it.

    Raises:
        Refused: it is no regular file, a link, or too large.
        OSError: it cannot be opened.
    """
    name = os.fspath(path)
    # O_NONBLOCK: neither the other end of a pipe nor the holder of a lease is waited for. It means nothing to reads of
    # a regular file.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        _refuse_special(name, os.stat(name, follow_symlinks=follow))  # before: opening a device may have effects
        fd = os.open(name, flags)
    except ValueError:  # a NUL in a name from a file
        raise Refused(errno.EINVAL, "its name is impossible", name) from None
    except OSError as error:
        if error.errno == errno.ELOOP and not isinstance(error, Refused):
            raise Refused(errno.ELOOP, "it is a link, which is not followed", name) from None
        raise
    try:
        status = os.fstat(fd)
        _refuse_special(name, status)
        if most is not None and status.st_size > most:
            raise Refused(errno.EFBIG, f"it has {status.st_size} bytes, at most {most} are read", name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _refuse_special(name: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", name)
    if stat.S_ISLNK(status.st_mode):
        raise Refused(errno.ELOOP, "it is a link, which is not followed", name)
    if not stat.S_ISREG(status.st_mode):
        raise Refused(errno.EINVAL, "it is not a regular file", name)


@contextmanager
def regular_file(path: str | os.PathLike[str], most: int | None = None, *, follow: bool = False) -> Iterator[int]:
    """`open_regular` for a with statement."""
    fd = open_regular(path, most, follow=follow)
    try:
        yield fd
    finally:
        os.close(fd)


def read_regular(path: str | os.PathLike[str], most: int, *, follow: bool = False) -> bytes:
    """The whole content of a regular file of at most `most` bytes; raises as `open_regular`."""
    with regular_file(path, most, follow=follow) as fd:
        return read_all(fd, os.fstat(fd).st_size)


def read_all(fd: int, nbytes: int, offset: int = 0) -> bytes:
    """`nbytes` from `offset`, fewer where the file ends. What a file in /proc has beyond its size is not read."""
    parts = []
    while nbytes > 0:
        part = os.pread(fd, nbytes, offset)
        if not part:
            break
        parts.append(part)
        nbytes -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Window:
    """A part of an open file or of bytes, read piece by piece: a file truncated meanwhile ends early.

    A mapping would fault: touching a truncated part is SIGBUS.
    """

    def __init__(self, source: int | bytes, start: int = 0, nbytes: int | None = None) -> None:
        if nbytes is None:
            nbytes = (len(source) if isinstance(source, bytes) else os.fstat(source).st_size) - start
        self._source, self._start, self.nbytes = source, start, max(0, nbytes)

    def read(self, offset: int, nbytes: int) -> bytes:
        """The bytes that lie inside."""
        if offset < 0 or offset >= self.nbytes or nbytes <= 0:
            return b""
        nbytes, at = min(nbytes, self.nbytes - offset), self._start + offset
        return self._source[at : at + nbytes] if isinstance(self._source, bytes) else read_all(self._source, nbytes, at)

    def part(self, offset: int, nbytes: int) -> Window:
        """A smaller window; offsets outside give an empty one."""
        inside = 0 <= offset <= self.nbytes
        return Window(self._source, self._start + offset, min(nbytes, self.nbytes - offset) if inside else 0)


__all__ = ["MIB", "Refused", "Window", "open_regular", "read_all", "read_regular", "regular_file"]
