"""Bundles as run directories: unpacked into a private temporary directory, which is removed when the process ends."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from pytracer._errors import InputError
from pytracer.decode.formats.bundle import is_bundle, unpack_bundle


def run_directory_of(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """`path` itself, or the directory into which the bundle was unpacked.

    Raises:
        InputError: the bundle cannot be read, or there is no room.
    """
    if not is_bundle(path):
        return path
    directory = Path(tempfile.mkdtemp(prefix="pytracer-bundle-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    try:
        unpack_bundle(path, directory)
    except OSError as error:
        raise InputError(
            f"{os.fspath(path)} cannot be unpacked into {directory}: {error.strerror}", "set TMPDIR"
        ) from None
    return directory
