"""The kernel's log while a job runs: only lines about kills, faults and broken hardware, bounded.

/dev/kmsg is opened at its end before the job starts, so that each later message is read once and no clocks are
compared. Containers often have no such file, or no permission: then syslog(2) is tried, else the reason is recorded.
Nothing here raises.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import time

from pytracer.launcher.json_object import JsonObject

WANTED = re.compile(
    r"out of memory|oom-kill|oom_reaper|oom-killer|Killed process|segfault at|traps: |general protection|NVRM: Xid"
    r"|hung_task|blocked for more than|Hardware Error|EDAC |memory failure|I/O error",
    re.IGNORECASE,
)
_MOST_LINES = 200
_LONGEST_LINE = 400
_RECORD_BYTES = 8192  # the kernel refuses a shorter buffer than the record
_MOST_RECORDS = 20_000  # per sample: a flooded log must not block the launcher
_SYSLOG_READ_ALL = 3
_SYSLOG_SIZE = 10


class KernelLog:
    """The messages since it was made."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._descriptor = -1
        self._last = ""
        self._syslog = False
        self._lines: list[JsonObject] = []
        self._left_out = 0
        self._lost = 0
        self.why: str | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            self.why = f"{path}: {errno.errorcode.get(error.errno or 0, '?')}: {error.strerror}"
            text = _syslog()
            if text:
                self._syslog, self.why = True, None
                self._last = text.splitlines()[-1]

    def look(self) -> None:
        """Reads new messages."""
        if self._descriptor < 0:
            return
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten before it was read; the next read continues behind
                    self._lost += 1
                    continue
                self.why = f"{errno.errorcode.get(error.errno or 0, '?')}: {error.strerror}"
                self.close()
                return
            if not record:
                return
            self._keep(*parse_record(record))

    def finish(self) -> None:
        """The last sample."""
        self.look()
        if self._syslog:
            lines = _syslog().splitlines()
            start = lines.index(self._last) + 1 if self._last in lines else 0
            for line in lines[start:]:
                self._keep(*parse_line(line))
        self.close()

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def as_dict(self) -> JsonObject:
        """For run.json: the last lines, and how many before them were left out, or lost in the kernel."""
        return {
            "readable": self.why is None,
            "why": self.why,
            "lines": list(self._lines),
            "left_out": self._left_out,
            "lost": self._lost,
        }

    def _keep(self, log_us: int | None, text: str) -> None:
        if not WANTED.search(text):
            return
        self._lines.append({"log_us": log_us, "seen_mono_ns": time.monotonic_ns(), "text": text[:_LONGEST_LINE]})
        if len(self._lines) > _MOST_LINES:
            del self._lines[0]
            self._left_out += 1


def parse_record(record: bytes) -> tuple[int | None, str]:
    """One record of /dev/kmsg, "level,sequence,microseconds,flags;text" (Documentation/ABI/testing/dev-kmsg)."""
    head, _, text = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    log_us = int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None
    return log_us, text.split("\n", 1)[0]


def parse_line(line: str) -> tuple[int | None, str]:
    """One line in the format of syslog(2) and dmesg: "<6>[   12.345678] text"."""
    match = re.match(r"(?:<\d+>)?\[\s*(\d+)\.(\d{6})\](?:\[\s*\w+\])? (.*)", line)
    return (int(match[1]) * 1_000_000 + int(match[2]), match[3]) if match else (None, line)


def _syslog() -> str:
    """The whole log by syslog(2); "" if refused."""
    with contextlib.suppress(OSError, AttributeError):
        read = ctypes.CDLL(None).klogctl
        size = read(_SYSLOG_SIZE, None, 0)
        if 0 < size <= 1 << 26:
            buffer = ctypes.create_string_buffer(size)
            count = read(_SYSLOG_READ_ALL, buffer, size)
            return buffer.raw[: max(0, count)].decode("utf-8", "replace")
    return ""
