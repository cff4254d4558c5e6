"""Files that the user named: checked before the work begins, and written as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pytracer._errors import PytracerError, UsageError


def checked_output(output: str | None, force: bool, option: str = "-o") -> Path | None:
    """The file to write; None for stdout. Fails early, before a long merge.

    Raises:
        UsageError: it exists and `force` was not given, or cannot be one.
    """
    if output is None or output == "-":
        return None
    path = Path(output)
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint=f"give {option} the name of a file")
    if path.exists() and not force:
        raise UsageError(f"{path} exists", hint=f"overwrite it with --force, or choose another {option} FILE")
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}", hint=f"make it first, or choose another {option} FILE")
    return path


def write_aside(path: Path, content: str | bytes) -> None:
    """Writes to a temporary file and renames it, so that a partial report is never visible.

    Raises:
        PytracerError: it cannot be written.
    """
    aside: str | None = None
    try:
        if path.exists() and not path.is_file():  # /dev/null, a pipe: never replaced
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            aside = file.name
            file.write(content.encode() if isinstance(content, str) else content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(aside, 0o666 & ~umask)
        os.replace(aside, path)
    except OSError as error:
        if aside is not None:
            Path(aside).unlink(missing_ok=True)
        raise PytracerError(
            f"{path} cannot be written: {error.strerror or error}", hint="choose another FILE"
        ) from error
