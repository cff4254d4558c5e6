"""Job control: the launcher is stopped while, and only while, the job is.

A shell waits for the launcher and takes the terminal back when it stops. The job may handle SIGTSTP itself, as an
editor does, or be stopped by its own pid: so the launcher blocks these signals and stops after the job has stopped, by
the same signal. A stopped process cannot notice that the job alone was continued: meanwhile a child of the launcher
polls, and continues it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

from pytracer.launcher.signal_wait import next_signal

_LOOK_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal; False if /proc does not show it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def stop_as_well(job: int, number: int) -> int:
    """Stops this process by signal `number`, which stopped the job; returns when it has been continued.

    Returns:
        The pid of the child that looked meanwhile and may have sent SIGCONT; -1 when there was none.

    All signals must be blocked. In an orphaned process group SIGTSTP, SIGTTIN and SIGTTOU stop no process:
    then this returns at once, and the job alone is stopped.
    """
    if not is_stopped(job):
        return -1
    try:
        lookout = _start_lookout(job)
    except OSError:  # the process limit is reached: staying stopped is worse than running
        return -1
    if number == signal.SIGSTOP:
        os.kill(os.getpid(), number)
    else:
        # Pending first, then the check: a SIGCONT for the process group in between discards the pending stop.
        before = signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        if is_stopped(job):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        else:
            next_signal({number}, 0)
        signal.signal(number, before)
    os.kill(lookout, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(lookout, 0)
    return lookout


def _start_lookout(job: int) -> int:
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()  # a stop of the process group must not stop this child
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        while os.getppid() == launcher and is_stopped(job):
            time.sleep(_LOOK_SECONDS)
        if os.getppid() == launcher:
            os.kill(launcher, signal.SIGCONT)
    finally:
        os._exit(0)
