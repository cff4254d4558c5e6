"""Work of the launcher in a child process, so that signals to the job are forwarded meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

from pytracer.cli.terminal import say


class Background:
    """One task at a time, each in a process of its own.

    Args:
        own: pids of the launcher's own children; this one's is added.
        what: the product, for the line about an error: "no report of the hang".
    """

    def __init__(self, own: set[int], what: str) -> None:
        self._own, self._what = own, what
        self._pid = 0

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        self._reap(os.WNOHANG)
        return self._pid != 0

    def start(self, task: Callable[[], None]) -> bool:
        """Runs `task` in a child process; False if there is no process to be had."""
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:  # the process limit is reached
            return False
        if pid:
            self._pid = pid
            self._own.add(pid)
            return True
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            task()
        except KeyboardInterrupt:  # Ctrl-C is the job's, and ends this, too
            pass
        except BaseException as error:  # this process must never return into the launcher
            with contextlib.suppress(Exception):
                say(f"{self._what}: {type(error).__name__}: {error}")
        finally:
            os._exit(0)

    def finish(self, seconds: float) -> bool:
        """Waits for the task, and ends it when the time is up; whether it had ended before."""
        until = time.monotonic() + seconds
        while self.busy and time.monotonic() < until:
            time.sleep(0.05)
        if not self._pid:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._reap(0)
        return False

    def _reap(self, options: int) -> None:
        if self._pid:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._pid, options)[0] == 0:
                    return
            self._pid = 0
