"""Which process has a TCP port of this machine: from /proc, for the moment at which a server was refused that port.

Sockets are those of this network namespace. Of a process that has one: its number, start, parent and the name of its
program; of its command line nothing else. Processes of other users, and those outside a container, are not seen.
Bounded in time: the process is about to end. No file system but /proc is asked; readlink() of a descriptor asks none.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator

from pytracer._started_package import program_name
from pytracer.blackbox.redaction import redact_text

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LISTENING, _CLOSING = b"0A", b"06"  # TCP_LISTEN, TCP_TIME_WAIT of the kernel's net/tcp_states.h
_LONGEST_S = 0.5  # for the tables, and for the processes
_MOST_BYTES = 4096  # of a command line
_NAME_CHARACTERS = 60
_STATE, _PARENT, _START = 0, 1, 19  # of /proc/PID/stat, behind the name


class Sockets:
    """Of one port: `listening` and `connected` by inode, with the uid of whoever made it; `closing`: in TIME_WAIT."""

    def __init__(self) -> None:
        self.listening: dict[bytes, int] = {}
        self.connected: dict[bytes, int] = {}
        self.closing = 0

    @property
    def state(self) -> str:
        """What keeps a server from the port; "free", too, where a socket has it that is bound and does not listen."""
        return (
            "listening" if self.listening else "connected" if self.connected else "closing" if self.closing else "free"
        )


def sockets_of(ports: Collection[int]) -> dict[int, Sockets]:
    """Those whose own end has one of these ports.

    Raises:
        OSError: the tables cannot be read.
        TimeoutError: they are too long.
    """
    found = {port: Sockets() for port in ports}
    ends = {b"%04X" % port: sockets for port, sockets in found.items()}
    until = time.monotonic() + _LONGEST_S
    for path in _TABLES:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as table:  # a kernel without IPv6
            for line in table:
                if time.monotonic() > until:
                    raise TimeoutError
                words = line.split(None, 10)
                sockets = ends.get(words[1].rpartition(b":")[2]) if len(words) > 9 else None
                if sockets is not None:
                    _add(sockets, words[3], int(words[7]), words[9])
    return found


def _add(sockets: Sockets, state: bytes, user: int, inode: bytes) -> None:
    if state == _LISTENING:
        sockets.listening[inode] = user
    elif state == _CLOSING or inode == b"0":
        sockets.closing += 1
    else:
        sockets.connected[inode] = user


def holder_of(inodes: Collection[bytes]) -> dict[str, str]:
    """The process that had one of these sockets first: a forked child has those of its parent, too.

    Only their `count` where unrelated processes have one each; nothing where none is seen.
    """
    held = dict(_holders(inodes))
    if _are_unrelated(held.values()):
        return {"count": str(len(held))}
    stats = {pid: known for pid in held if (known := _stat(pid)) is not None}
    if not stats:  # all have ended meanwhile
        return {}
    pid = min(stats, key=lambda item: (int(stats[item][_START]), item))
    return {"pid": str(pid), **_process(pid, stats[pid]), **({"count": str(len(held))} if len(held) > 1 else {})}


def _are_unrelated(held: Iterable[set[str]]) -> bool:
    """Whether they come apart in groups that share no socket."""
    groups: list[set[str]] = []
    for own in held:
        apart = [item for item in groups if not item & own]
        groups = [*apart, own.union(*(item for item in groups if item & own))]
    return len(groups) > 1


def _holders(inodes: Collection[bytes]) -> Iterator[tuple[int, set[str]]]:
    wanted = {f"socket:[{inode.decode()}]" for inode in inodes}
    until = time.monotonic() + _LONGEST_S
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        own = set()
        with contextlib.suppress(OSError):  # of another user, or ended meanwhile
            for descriptor in os.listdir(f"/proc/{name}/fd"):
                if time.monotonic() > until:
                    return
                with contextlib.suppress(OSError):
                    own.add(os.readlink(f"/proc/{name}/fd/{descriptor}"))
        if own & wanted:
            yield int(name), own & wanted


def _stat(pid: int) -> list[bytes] | None:
    """None where it has ended meanwhile."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read(_MOST_BYTES).rpartition(b")")[2].split()
        int(words[_PARENT]), int(words[_START])
    except (OSError, ValueError, IndexError):
        return None
    return words


def _process(pid: int, stat: list[bytes]) -> dict[str, str]:
    """`start`: in ticks after the boot."""
    start = int(stat[_START])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
    facts = {"start": str(start), "parent": str(int(stat[_PARENT])), "seconds": str(max(0, int(age)))}
    command: list[str] = []
    if stat[_STATE] != b"D":  # its memory may be locked as long as it waits
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            command = [item.decode("utf-8", "replace") for item in file.read(_MOST_BYTES).split(b"\0")]
    program = "".join(filter(str.isprintable, program_name(command)))[:_NAME_CHARACTERS] if command else ""
    if program and not redact_text(program.encode("utf-8", "replace"))[1]:
        facts["program"] = program
    return facts
