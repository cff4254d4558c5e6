"""Separates signals to the launcher from signals to its whole process group, which the job receives itself.

kill(2) leaves no mark of that in a siginfo. So a child of the launcher stays in the process group, which nothing has a
reason to signal: a signal that reaches it was sent to all, by a shell's `kill %1`, by `timeout`, by a service manager
that signals each process of a cgroup. A job that gets SIGTERM twice may abort its clean-up.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import struct
import time
from pathlib import Path

from pytracer.launcher.signal_wait import EVERY, Received, next_signal

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # linux/prctl.h
_HEARD = struct.Struct("<II")  # for each signal: how often, and the last sender
_SIGNALS = 65
_GRACE_SECONDS = 0.02  # a sender that signals one process after the other has reached the other one by then
_IDLE_LOOKS = 2  # it may wake while one look is taken
_TURN_SECONDS = 1.0  # a pending signal is delivered by then, however busy the machine


class Bystander:
    """The child; ended with `end`, and by the kernel when the launcher dies."""

    def __init__(self) -> None:
        """Forks; all signals must be blocked. If that fails, every signal is treated as sent to the launcher alone."""
        self._heard = mmap.mmap(-1, _HEARD.size * _SIGNALS)  # shared, and needs no descriptor
        self._known = [0] * _SIGNALS
        self._pid = 0
        launcher = os.getpid()
        with contextlib.suppress(OSError):
            self._pid = os.fork()
            if self._pid == 0:
                self._listen(launcher)

    def heard(self, received: Received) -> bool:
        """Whether a signal that a process sent to the launcher also reached the bystander."""
        until, idle = time.monotonic() + _GRACE_SECONDS, 0
        while self._pid and 0 < received.number < _SIGNALS:
            count, sender = _HEARD.unpack_from(self._heard, received.number * _HEARD.size)
            if count != self._known[received.number]:
                self._known[received.number] = count
                if sender == received.sender:
                    return True
            idle = idle + 1 if self._is_idle(received.number) else 0
            if time.monotonic() > until and idle >= _IDLE_LOOKS:
                break
            if time.monotonic() > until + _TURN_SECONDS:
                return True
            time.sleep(0.001)
        if self._pid and received.number == signal.SIGCONT:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGCONT)  # the sender of a stop may continue the launcher alone
        return False

    def end(self) -> None:
        """Ends the child."""
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)

    def _listen(self, launcher: int) -> None:
        try:
            prctl = ctypes.CDLL(None).prctl
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            prctl(_PR_SET_NAME, b"pytracer-signal", 0, 0, 0)
            os.closerange(0, 1 << 20)  # the child must not keep pipes open
            while os.getppid() == launcher:
                received = next_signal(EVERY, None)
                # signals from the kernel are classified without it
                if received is not None and received.number < _SIGNALS and received.code <= 0:
                    at = received.number * _HEARD.size
                    count, _ = _HEARD.unpack_from(self._heard, at)
                    _HEARD.pack_into(self._heard, at, count + 1, received.sender)
        finally:
            os._exit(0)

    def _is_idle(self, number: int) -> bool:
        """Whether the signal is not pending, and the child not awake: it may have taken it, and not counted it yet."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            status = Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8", errors="replace")
            fields = dict(line.partition(":")[::2] for line in status.splitlines())
            pending = int(fields["ShdPnd"], 16) >> (number - 1) & 1
            return not pending and fields["State"].strip()[0] not in "RD"
        return True
