"""Files of a run directory, written so that no other user can redirect them.

Everything is opened below a descriptor of the directory, which must belong to this user and be writable by no other; no
link is followed, and an existing file is never opened for writing but replaced. Used by everything that writes into a
run directory. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pytracer._errors import RecordingError

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_AT_ONCE = 1 << 16
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def private_directory(path: str | os.PathLike[str], below: int | None = None) -> Iterator[int]:
    """Opens a private directory; yields its descriptor.

    Args:
        path: of the directory; the last part must not be a link.
        below: descriptor of the directory that `path` is relative to.

    Raises:
        OSError: it cannot be opened.
        RecordingError: it is a link, or another user owns it or may write it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=below)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and stat.S_ISLNK(_mode_of(path, below)):
            raise RecordingError(
                f"{os.fspath(path)} is a link, which could lead anywhere", "remove it, or choose another -o DIR"
            ) from error
        raise
    try:
        _check(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def made_directory(name: str, below: int) -> Iterator[int]:
    """The same for a directory below another one, which is created (0700) if missing."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode=0o700, dir_fd=below)
    with private_directory(name, below) as descriptor:
        yield descriptor


def write_private(path: Path, content: bytes) -> None:
    """Writes a file by a rename, readable by the owner only: it is never incomplete.

    Raises:
        OSError: the directory cannot be written, or the disk is full; an older file stays as it was.
        RecordingError: the directory is not ours alone.
    """
    with private_directory(path.parent) as directory:
        aside = f".{path.name}.{os.getpid()}"
        try:
            with os.fdopen(new_file(aside, directory), "wb") as file:
                file.write(content)
            os.replace(aside, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(aside, dir_fd=directory)
            raise


def create_private(name: str, content: bytes, directory: int) -> bool:
    """Creates a complete file of mode 0600 in one step; False if there is one of that name.

    Of several processes, on several hosts that share the directory, one succeeds, and none sees half a file: a link is
    the one operation that network file systems, too, refuse for an existing name. Where there are no links, a reader
    may find the file incomplete.

    Raises:
        OSError: the directory cannot be written, or the disk is full.
    """
    aside = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
    with os.fdopen(new_file(aside, directory), "wb") as file:
        file.write(content)
    try:
        os.link(aside, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError:
        return _created_in_place(name, content, directory)
    finally:
        os.unlink(aside, dir_fd=directory)
    return True


def _created_in_place(name: str, content: bytes, directory: int) -> bool:
    try:
        descriptor = os.open(name, _NEW, 0o600, dir_fd=directory)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(content)
    return True


def copy_private(name: str, source: int, target: int, new_name: str | None = None) -> None:
    """Copies a regular file from one directory into another.

    Args:
        name: of the file, in both.
        source: descriptor of the directory that it lies in.
        target: descriptor of the directory that it goes to.
        new_name: its name there, if it is another one.

    Raises:
        OSError: it cannot be read or written, is a link or no regular file.
    """
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    with os.fdopen(opened, "rb") as old:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        with os.fdopen(new_file(new_name or name, target), "wb") as new:
            while part := old.read(_AT_ONCE):
                if part.count(0) == len(part):
                    new.seek(len(part), os.SEEK_CUR)  # most of a recording is empty: a hole takes no space
                else:
                    new.write(part)
            new.truncate()


def new_file(name: str, directory: int) -> int:
    """Creates a file of mode 0600; an old one, as a dead launcher leaves, is unlinked first."""
    for _ in range(2):
        try:
            descriptor = os.open(name, _NEW, 0o600, dir_fd=directory)
        except FileExistsError:
            os.unlink(name, dir_fd=directory)
            continue
        os.fchmod(descriptor, 0o600)  # whatever the umask
        return descriptor
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def _mode_of(path: str | os.PathLike[str], below: int | None) -> int:
    try:
        return os.stat(path, dir_fd=below, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _check(descriptor: int, path: str | os.PathLike[str]) -> None:
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_MAY_WRITE:
        return
    # File systems that map owners, or have none, show all alike: what we create there looks the same as what we found.
    uid, mode = _as_made_here(descriptor)
    if found.st_uid != uid:
        raise RecordingError(f"{os.fspath(path)} belongs to another user (uid {found.st_uid})", "choose another -o DIR")
    if found.st_mode & _OTHERS_MAY_WRITE & ~mode:
        raise RecordingError(
            f"other users may write {os.fspath(path)}", "`chmod go-w` it, or choose another directory with -o DIR"
        )


def _as_made_here(directory: int) -> tuple[int, int]:
    """Owner and mode that this file system shows for a private directory of this process."""
    name = f".pytracer.{os.getpid()}"
    try:
        os.mkdir(name, mode=0o700, dir_fd=directory)
    except OSError:
        return os.geteuid(), 0
    try:
        made = os.stat(name, dir_fd=directory, follow_symlinks=False)
    finally:
        os.rmdir(name, dir_fd=directory)
    return made.st_uid, made.st_mode
