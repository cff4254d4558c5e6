"""The only writer to stdout and stderr of the command line.

Output contains text from jobs, recordings and arguments. Reports are made printable value by value before they are laid
out (`_printable.printable`); this module is the last defence, below all printers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import traceback
from collections.abc import Iterator
from typing import TextIO

from pytracer._errors import PytracerError
from pytracer._printable import neutral, one_line

_HANG = 4
_NARROWEST = 20


def show(text: str, *, styled: bool = False, error: bool = False) -> None:
    """Writes lines and flushes. On a terminal, long lines are continued indented, as in reports.

    Args:
        text: what to write, with its line breaks.
        styled: whether the text contains our colours; it is then laid out for the terminal already.
        error: to stderr instead of stdout.

    Raises:
        OSError: it cannot be written, or the stream was closed before this process began.
    """
    stream = sys.stderr if error else sys.stdout
    safe = neutral(text, styled=styled)
    if stream is not None and not styled and stream.isatty():
        safe = folded(safe, shutil.get_terminal_size().columns)
    _write(safe, stream)


def folded(text: str, columns: int) -> str:
    """Lines of at most `columns`: a terminal would wrap them without indentation."""
    if columns < _NARROWEST or all(len(line) * 2 <= columns for line in text.split("\n")):
        return text
    from rich.cells import cell_len  # imported here: the launcher stays small while the job runs

    return "\n".join(line if cell_len(line) <= columns else _fold(line, columns) for line in text.split("\n"))


def _fold(line: str, columns: int) -> str:
    from rich.cells import cell_len

    indent = min(len(line) - len(line.lstrip()) + _HANG, columns // 2)
    out, used = [""], 0
    for char in line:
        width = cell_len(char)
        if used + width > columns:
            out.append(" " * indent)
            used = indent
        out[-1] += char
        used += width
    return "\n".join(out)


def _write(safe: str, stream: TextIO | None) -> None:
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(
        safe.encode(encoding, "backslashreplace").decode(encoding)
    )  # the terminal may not encode every character
    stream.flush()


def flush() -> None:
    """Flushes stdout, unless it was closed before the program started."""
    if sys.stdout is not None:
        sys.stdout.flush()


def show_json(text: str) -> None:
    """Writes JSON to stdout; it is ASCII (`_printable.ascii_json`), and its data stays exact."""
    _write(text, sys.stdout)


def show_plain(text: str, *, error: bool = False) -> None:
    """Writes lines as they are: Markdown is laid out by whoever shows it, a program reads a workflow's commands."""
    _write(neutral(text), sys.stderr if error else sys.stdout)


def say(message: object) -> None:
    """One line for the user on stderr; a closed stderr is ignored."""
    with contextlib.suppress(OSError, ValueError):
        _write(f"pytracer: {neutral(words(message))}\n", sys.stderr)  # not folded: it may be copied


def interject(message: object) -> None:
    """One line on stderr while the job writes there, too: in one piece, and never behind the begin of the job's line.

    Where the end of what was written cannot be read, as on a terminal, a line break comes first.
    """
    line = f"pytracer: {neutral(words(message))}\n".encode("utf-8", "backslashreplace")
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
        number = sys.stderr.fileno()
        os.write(number, line if _at_line_start(number) else b"\n" + line)


def _at_line_start(number: int) -> bool:
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        return False
    if status.st_size == 0:
        return True
    descriptor = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, 1, status.st_size - 1) == b"\n"
    finally:
        os.close(descriptor)


def words(message: object) -> str:
    """A message on one line, single blanks between its words."""
    return one_line(" ".join(str(message).split()))


def show_traceback() -> None:
    """The current exception, for `-vv`; file names and messages in it are untrusted, too."""
    lines = traceback.format_exc().splitlines()
    show("".join(f"{one_line(line)}\n" for line in lines), error=True)


@contextlib.contextmanager
def one_line_for_an_error() -> Iterator[None]:
    """The job has run: from here on, an internal error is one line on stderr and nothing else."""
    try:
        yield
    except PytracerError as error:
        say(str(error))
    except KeyboardInterrupt:
        say("interrupted; `pytracer inspect` makes the report again")
    except Exception as error:  # whatever it is, the job's status counts more
        say(f"the report failed: {type(error).__name__}: {error}; please report it")
