"""Which processes of this machine have a file open for writing, from /proc: at the moment at which it was read.

Only numbers of processes are kept. Those of other users, and outside a container, are not seen. Bounded in time: the
process is about to end. No file system but /proc is asked; readlink() of a descriptor asks none.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

_LONGEST_S = 0.25
_MOST_BYTES = 4096
_PARENT = 1  # of /proc/PID/stat, behind the name


def open_writers(path: str) -> list[int]:
    """Without forked children that only have the descriptor of their parent."""
    found = {pid: _parent(pid) for pid in _writers(os.path.realpath(path))}
    return sorted(pid for pid, parent in found.items() if parent not in found)


def _writers(path: str) -> Iterator[int]:
    until = time.monotonic() + _LONGEST_S
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # of another user, or ended meanwhile
            for descriptor in os.listdir(f"/proc/{name}/fd"):
                if time.monotonic() > until:
                    return
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{name}/fd/{descriptor}") == path and _writes(name, descriptor):
                        yield int(name)
                        break


def _writes(pid: str, descriptor: str) -> bool:
    """By the flags with which it was opened, in octal."""
    with open(f"/proc/{pid}/fdinfo/{descriptor}", "rb") as file:
        words = file.read(_MOST_BYTES).split()
    return int(words[words.index(b"flags:") + 1], 8) & os.O_ACCMODE != os.O_RDONLY if b"flags:" in words else False


def _parent(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read(_MOST_BYTES).rpartition(b")")[2].split()[_PARENT])
    return None
