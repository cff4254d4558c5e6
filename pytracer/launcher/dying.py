"""Processes that were killed and have not ended yet: the kernel frees their memory, or has not run them since.

SIGKILL of a whole group, as by `timeout -k`, ends the launcher's child first, because it is small; ranks with gigabytes
follow milliseconds later. They did not outlive the job.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable
from pathlib import Path

_PF_EXITING = 0x4  # linux/sched.h
_SIGKILL_PENDING = 1 << 8


def is_dying(pid: int) -> bool:
    """Whether a process can do nothing any more: it is exiting, or SIGKILL waits for it. False if it has gone."""
    try:
        directory = Path("/proc", str(pid))
        flags = int((directory / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[6])
        pending = 0
        for line in (directory / "status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("SigPnd:", "ShdPnd:")):
                pending |= int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        return False
    return bool(flags & _PF_EXITING or pending & _SIGKILL_PENDING)


def wait_for_the_dying(processes: Iterable[tuple[int, int]], seconds: float) -> None:
    """Waits until those of the processes have ended that are dying.

    Args:
        processes: pid and pidfd of each.
        seconds: at most, for all of them together.
    """
    until = time.monotonic() + seconds
    for pid, descriptor in processes:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(0) and is_dying(pid):
            poll.poll(max(0, int((until - time.monotonic()) * 1000)))
