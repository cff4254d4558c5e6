"""One process that the launcher watches: its memory and limits while it runs, and how it ended.

It is held by a descriptor (pidfd_open(2)), which keeps no process from ending and no parent from reaping it.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from pytracer.launcher.json_object import JsonObject
from pytracer.launcher.run_directory import start_ticks

# struct pidfd_info of linux/pidfd.h; it has the exit status since Linux 6.15, once the process was reaped.
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<QQ11Ii")

_LIMITS = {
    "Max cpu time": "cpu seconds", "Max file size": "file size", "Max data size": "data",
    "Max address space": "address space",
}  # fmt: skip


@dataclass
class Seen:
    """A traced process, and the interval in which it ended."""

    pid: int
    start_ticks: int
    descriptor: int
    first_mono_ns: int
    alive_mono_ns: int
    rss: int | None = None
    rss_peak: int | None = None
    swap: int | None = None
    address_space: int | None = None
    cpu_seconds: float | None = None
    limits: dict[str, list[int | None]] | None = None  # soft and hard; of those that end or refuse at once
    first_limits: dict[str, list[int | None]] | None = None  # when it was first seen, where it has others since
    cgroup: str | None = None
    gone_mono_ns: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    how: str | None = None
    command: list[str] | None = None
    looks_gone: int = 0
    limits_known: bool = False

    def as_dict(self) -> JsonObject:
        """For run.json."""
        private = ("descriptor", "looks_gone", "limits_known")
        return {name: value for name, value in vars(self).items() if name not in private and value is not None}

    def ended(self, status: int, how: str) -> None:
        """Records a wait status."""
        self.how = how
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        elif os.WIFEXITED(status):
            self.exit_code = os.WEXITSTATUS(status)


def look_at(seen: Seen) -> None:
    """Its memory while it runs, else how it ended, if the kernel reports that (Linux 6.15)."""
    now = time.monotonic_ns()
    if seen.gone_mono_ns is None and not _has_ended(seen.descriptor):
        seen.alive_mono_ns = now
        _note_memory(seen)
        _note_limits(seen)
        return
    if seen.gone_mono_ns is None:
        seen.gone_mono_ns = now
    status, how = _exit_status(seen.descriptor), "pidfd"
    if status is None:
        status, how = _zombie_status(seen), "zombie"
    if status is not None:
        seen.ended(status, how)
        os.close(seen.descriptor)
        seen.descriptor = -1


def _has_ended(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _exit_status(descriptor: int) -> int | None:
    """The wait status of an ended process by its descriptor; None before it was reaped and on older kernels."""
    info = bytearray(_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(info)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


def _zombie_status(seen: Seen) -> int | None:
    """The wait status of a process that ended and was not reaped yet: field 52 of /proc/PID/stat (proc(5)).

    Without permission the kernel writes 0, so 0 means nothing.
    """
    if start_ticks(seen.pid) != seen.start_ticks:
        return None
    try:
        text = Path(f"/proc/{seen.pid}/stat").read_text(encoding="utf-8", errors="replace")
        words = text.rpartition(")")[2].split()
        if words[0] != "Z":
            return None
        seen.cpu_seconds = _cpu_seconds(words)
        return int(words[49]) or None
    except (OSError, ValueError, IndexError):
        return None


def _note_memory(seen: Seen) -> None:
    try:
        text = Path(f"/proc/{seen.pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name in ("VmRSS", "VmHWM", "VmSwap", "VmSize") and words and words[0].isdigit():
            values[name] = int(words[0]) * 1024
    seen.address_space = values.get("VmSize", seen.address_space)
    if "VmRSS" in values:
        seen.rss, seen.swap = values["VmRSS"], values.get("VmSwap")
        seen.rss_peak = max(seen.rss_peak or 0, values.get("VmHWM", 0), values["VmRSS"])


def _note_limits(seen: Seen) -> None:
    """And the CPU time that it had used."""
    try:
        rows = Path(f"/proc/{seen.pid}/limits").read_text(encoding="ascii", errors="replace").splitlines()
        words = Path(f"/proc/{seen.pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        seen.cpu_seconds = _cpu_seconds(words)
        found = {}
        for title, name in _LIMITS.items():
            row = next((row[len(title) :].split() for row in rows if row.startswith(title)), ["unlimited"] * 2)
            if row[:2] != ["unlimited"] * 2:
                found[name] = [None if word == "unlimited" else int(word) for word in row[:2]]
        if seen.limits_known and seen.first_limits is None and found != (seen.limits or {}):
            seen.first_limits = seen.limits or {}
        seen.limits, seen.limits_known = found or None, True
    except (OSError, ValueError, IndexError):
        return


def _cpu_seconds(words: list[str]) -> float:
    """Fields 14 and 15 of /proc/PID/stat (proc(5)); `words` begin with the third."""
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
