"""Verifies that a running process is the one that writes a recording, before it is signalled or stopped.

Pid, start time and state are contents of the recording, and its author may have forged them: root would signal or stop
a process of the author's choice. That the process has this very file mapped cannot be forged.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from pathlib import Path

from pytracer.decode.files import regular_file

_PIDFD_SEND_SIGNAL = 424  # on all architectures (Linux 5.1)
_SI_QUEUE = -1
_SIGINFO = struct.Struct("<iiiiiIQ88x")  # asm-generic/siginfo.h: signo, errno, code, padding; _rt: pid, uid, value
_SHARED_MAPPING = re.compile(r"^\S+ ..\Ss \S+ \S+ (\d+) +(/.*)$", re.MULTILINE)


class Recorder:
    """A process by its pidfd, which never refers to a later one with the same pid; for `with`."""

    def __init__(self, pid: int) -> None:
        """Raises OSError when there is no such process."""
        self.pid = pid
        self._fd = -1
        try:
            self._fd = os.pidfd_open(pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:  # before Linux 5.3: by pid
                raise

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def writes(self, box: str) -> bool:
        """Whether it has the file mapped shared and writable. Raises OSError without permission."""
        with regular_file(box) as file:
            inode = os.fstat(file).st_ino
        text = Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8", errors="surrogateescape")
        # Not by device: overlayfs and btrfs report another one here than stat() does.
        name = os.path.basename(box)
        return any(
            int(found[1]) == inode and os.path.basename(found[2]) == name for found in _SHARED_MAPPING.finditer(text)
        )

    def queue(self, signal: int, value: int) -> bool:
        """sigqueue(3) to this process; False when it has ended or may not be signalled."""
        if self._fd < 0:
            queue = ctypes.CDLL(None).sigqueue
            queue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
            return bool(queue(self.pid, signal, value) == 0)
        info = _SIGINFO.pack(signal, 0, _SI_QUEUE, 0, os.getpid(), os.getuid(), value)
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        arguments = (ctypes.c_long(_PIDFD_SEND_SIGNAL), ctypes.c_long(self._fd), ctypes.c_long(signal))
        return bool(call(*arguments, ctypes.c_char_p(info), ctypes.c_long(0)) == 0)


def is_recorder(pid: int, box: str) -> bool:
    """Whether a process writes a recording; False if permission is missing: then nothing may be done to it."""
    try:
        with Recorder(pid) as recorder:
            return recorder.writes(box)
    except OSError:
        return False
