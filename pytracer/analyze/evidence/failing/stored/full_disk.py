"""A write that was refused because its file system was full, as it was asked when the exception was raised."""

from __future__ import annotations

import os

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import size_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.opened import number_of, opened

_PATH_OF = "file of "
_NO_SPACE = Pattern(r"\[Errno 28\]|errno = 28|[Nn]o space left")
_FULL = 1 << 20  # bytes: what is left where another write was too large
_MOST_LEFT = 0.01  # of a small one
_WORTH_TELLING = 0.05  # of the file system


class FullDisk(msgspec.Struct, frozen=True):
    """`left` and `size` in bytes; `left` is None where there is no room for another file. `alike`: number, bytes."""

    folder: str
    name: str
    left: int | None
    size: int
    alike: tuple[int, int] | None
    written: int | None
    variables: tuple[str, ...]
    """That hold the path."""

    @property
    def subject(self) -> str:
        """For the headline."""
        if self.left is None:
            return f"the file system of {self.folder} can hold no more files (no inode is left)"
        return f"the file system of {self.folder} is full ({size_words(self.left)} left of {size_words(self.size)})"


def full_disk(at: FailingLine) -> str | None:
    """What to do."""
    found = _full_disk(at)
    if found is None:
        return None
    there = f"Make room in {found.folder}"
    if found.left is None:
        return f"{there}: delete or pack small files (`df -i` counts them), or write to another disk at line {at.line}."
    what = f"`df -h` shows the disk. Write to a larger one at line {at.line}, or delete there what nobody needs"
    if found.alike is not None:
        count, nbytes = found.alike
        what = (
            f"{count} files with names like {found.name} take {size_words(nbytes)} of it. Delete older ones before "
            f"line {at.line} writes the next, or write to a larger disk"
        )
    cut = f" {found.name} ({size_words(found.written)}) is cut off: delete it." if found.written is not None else ""
    return f"{there}: {what}.{cut}"


def full_disk_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _full_disk(at)
    return found.subject if found is not None else None


def full_disk_behind(at: FailingLine) -> Behind | None:
    """Where the path comes from; what was written is not at fault."""
    found = _full_disk(at)
    return Behind(found.variables) if found is not None else None


def _full_disk(at: FailingLine) -> FullDisk | None:
    """None where the exception may be another one's: room that is left is what decides, and for a full one no inode."""
    file, free = opened(at.values), number_of(at.values, "file system free")
    size, files = number_of(at.values, "file system size"), number_of(at.values, "file system files left")
    if file is None or free is None or not size:
        return None
    folder = os.path.dirname(file.path) or "."
    no_file = files == 0 and _NO_SPACE.search(at.message) is not None
    if not no_file and free > min(_FULL, size * _MOST_LEFT):
        return None
    count, nbytes = number_of(at.values, "files alike"), number_of(at.values, "files alike size")
    alike = (count, nbytes) if count and nbytes and nbytes >= size * _WORTH_TELLING else None
    paths = [(name, path) for name, path in at.values.items() if name.startswith(_PATH_OF)]
    held = tuple(name.removeprefix(_PATH_OF) for name, path in paths if path == file.path)
    return FullDisk(folder, file.name, None if no_file else free, size, alike, file.size, held)
