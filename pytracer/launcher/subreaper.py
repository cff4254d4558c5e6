"""Ends of processes whose parent died before them, for `pytracer run --subreaper`.

The launcher becomes their parent instead of init and reaps them. The job can detect that: getppid() of an orphan is not
1 but the launcher's pid, and a daemon lives on below it. So it is optional; on Linux 6.15 or later,
`seen_process.py` learns the same without it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
Note = Callable[[int, int, list[str], int], None]  # pid, wait status, command, start time in ticks


def adopt(note: Note, own: Callable[[], Collection[int]]) -> Callable[[int], None] | None:
    """Makes this process the parent of its descendants' orphans.

    Args:
        note: called for each orphan that ended.
        own: pids of children that the launcher started itself, beside the job.

    Returns:
        What reaps them, for `supervise`; None when the kernel refused.
    """
    try:
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            return None
    except (OSError, AttributeError):
        return None

    def reap(job: int) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid == job:
                return
            name, ticks = _identity(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            if ended.si_pid not in own():
                note(ended.si_pid, status, name, ticks)

    return reap


def _identity(pid: int) -> tuple[list[str], int]:
    """Name and start time of a zombie; its arguments are lost (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        name, _, rest = text.partition("(")[2].rpartition(")")
        return [name], int(rest.split()[19])
    except (OSError, ValueError, IndexError):
        return [], 0
