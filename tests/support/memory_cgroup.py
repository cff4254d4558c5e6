"""A real memory cgroup for one test, or the reason why there is none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pytracer.launcher import host_counters

LIMIT = 200 << 20


class NoMemoryCgroup(Exception):
    """A memory cgroup cannot be created on this machine."""


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int = LIMIT) -> Iterator[Path]:
    """A child of this process's own memory cgroup with a limit, by default of 200 MiB, that is verified to apply.

    Its kind of file system, the limit read back and the membership of a process are checked: on hybrid hosts
    /sys/fs/cgroup itself is a tmpfs, where mkdir and writes succeed and limit nothing.

    Raises:
        NoMemoryCgroup: it cannot be made.
    """
    groups, why = host_counters.memory_groups("self")
    if why is not None:
        raise NoMemoryCgroup(why)
    (version, _), parent = next(iter(groups.items()))
    directory = parent / f"pytracer-test-{os.getpid()}"
    try:
        directory.mkdir()
    except OSError as error:
        raise NoMemoryCgroup(f"{parent}: {error.strerror}") from None
    try:
        limit = directory / ("memory.limit_in_bytes" if version == 1 else "memory.max")
        try:
            limit.write_text(str(limit_bytes))
            held = int(limit.read_text())
        except (OSError, ValueError) as error:
            raise NoMemoryCgroup(f"{limit}: {error}") from None
        if held != limit_bytes or not _takes_members(directory):
            raise NoMemoryCgroup(f"{directory} holds no process or no limit")
        yield directory
    finally:
        directory.rmdir()


def enter(directory: Path) -> None:
    """Moves this process there; for `preexec_fn`."""
    (directory / "cgroup.procs").write_text(str(os.getpid()))


def _takes_members(directory: Path) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            enter(directory)
            inside = directory.name in Path("/proc/self/cgroup").read_text(encoding="utf-8")
            os._exit(0 if inside else 1)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
