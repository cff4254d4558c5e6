"""Files by path or by URL: a local file needs nothing, any other file system is opened by fsspec.

A file appears as a whole: by rename on a local disk, by one PUT in an object store.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytracer._errors import InputError, PytracerError
from pytracer._extras import library

EXTRA = "digest"


def is_url(place: str) -> bool:
    """Whether it is `s3://bucket/path` or the like, and no path."""
    return "://" in place


def joined(folder: str, name: str) -> str:
    """The place of a file in a folder."""
    return posixpath.join(folder, name)


def write_whole(place: str, content: bytes) -> None:
    """Writes or replaces a file; its folder is made.

    Raises:
        InputError: no file system is known for the URL.
        PytracerError: it cannot be written; nothing was changed.
    """
    if is_url(place):
        filesystem, path = _opened(place)
        with _refusals(place, "written"):
            put(filesystem, path, content)
        return
    with _refusals(place, "written"):
        _write_local(place, content)


def is_local(filesystem: Any) -> bool:
    """Whether a file system of fsspec is this machine's."""
    protocol = filesystem.protocol
    return "file" in ([protocol] if isinstance(protocol, str) else protocol)


def put(filesystem: Any, path: str, content: bytes) -> None:
    """The same on a file system of fsspec; raises what that raises."""
    if is_local(filesystem):
        _write_local(path, content)
    else:
        filesystem.pipe_file(path, content)


def _write_local(path: str, content: bytes) -> None:
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(aside, 0o666 & ~umask)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def read_whole(place: str, most: int) -> bytes:
    """The content of a file behind a URL.

    Raises:
        InputError: it does not exist, cannot be read, or has more than `most` bytes.
    """
    filesystem, path = _opened(place)
    with _refusals(place, "read", InputError), filesystem.open(path, "rb") as file:
        content: bytes = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{place} has more than {most} bytes", "name another file")
    return content


def files_in(folder: str, suffix: str) -> list[str] | None:
    """The URLs of the files in a folder behind a URL that end with `suffix`; None if the URL is that of a file.

    Raises:
        InputError: it does not exist or cannot be read.
    """
    filesystem, root = _opened(folder)
    with _refusals(folder, "read", InputError):
        filesystem.invalidate_cache()
        if filesystem.isfile(root):
            return None
        found = filesystem.ls(root, detail=False)
    return [str(filesystem.unstrip_protocol(path)) for path in sorted(found) if str(path).endswith(suffix)]


def _opened(place: str) -> tuple[Any, str]:
    fsspec = library("fsspec", EXTRA)
    try:
        filesystem, path = fsspec.core.url_to_fs(place)
    except (ValueError, ImportError) as error:
        raise InputError(f"{place} cannot be opened: {error}", "name a path, or a URL like s3://bucket/job") from None
    return filesystem, path


@contextmanager
def _refusals(place: str, what: str, kind: type[PytracerError] = PytracerError) -> Iterator[None]:
    """Turns what a file system raises into one line: each library has errors of its own."""
    try:
        yield
    except PytracerError:
        raise
    except FileNotFoundError:
        raise kind(f"{place} does not exist", "check the path or URL") from None
    except Exception as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = " ".join(why.split()) or type(error).__name__
        raise kind(f"{place} cannot be {what}: {reason}", "check the place and the access to it") from error
