"""What `pytracer run` does while its job runs: looks at it now and then, and reports once when it stands still."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

from pytracer.cli.terminal import say
from pytracer.launcher.process_monitor import Watch
from pytracer.launcher.run_directory import Run
from pytracer.launcher.stall_detector import Movement

_REPORTS = 5  # at most: a job that stalls again and again has been understood by then
_LAST_WORDS_SECONDS = 5.0  # a report that is being made when the job ends may take so long


class Attendance:
    """Decides what to do before each wait."""

    def __init__(self, run: Run, save: Callable[[], None], hang_seconds: float | None) -> None:
        self._run = run
        self.watch = Watch(run, save)
        self._seconds = hang_seconds
        self._movement = Movement(run.recording / "boxes", hang_seconds) if hang_seconds is not None else None
        self._next = 0.0
        self._reporter = 0
        self._reports = 0
        self.own: set[int] = set()

    def pause(self) -> float:
        """Does what is due; returns the seconds until something is due again."""
        now = time.monotonic()
        if now >= self._next:
            self.watch.look()
            self._reap_reporter(os.WNOHANG)
            if self._movement is not None and self._movement.stands_still():
                self._report()
            step = self.watch.seconds_to_next()
            self._next = time.monotonic() + min(step, self._seconds / 4 if self._seconds else step)
        return max(0.0, self._next - time.monotonic())

    def finish(self) -> None:
        """After the job ended."""
        until = time.monotonic() + _LAST_WORDS_SECONDS
        while self._reporter and time.monotonic() < until:
            self._reap_reporter(os.WNOHANG)
            time.sleep(0.05 if self._reporter else 0)
        if self._reporter:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._reporter, signal.SIGKILL)
            self._reap_reporter(0)
        self.watch.finish()

    def _reap_reporter(self, options: int) -> None:
        if self._reporter:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._reporter, options)[0] == 0:
                    return
            self._reporter = 0

    def _report(self) -> None:
        """In a process of its own, so that signals to the job are passed on meanwhile."""
        if self._reporter or self._reports >= _REPORTS:
            return
        self._reports += 1
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:  # no process to spare
            return
        if pid:
            self._reporter = pid
            self.own.add(pid)
            return
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            from pytracer.cli.attach import report_standstill

            report_standstill(self._run.recording, self._seconds or 0.0)
        except BaseException as error:  # this process must never return into the launcher
            with contextlib.suppress(Exception):
                say(f"no report of the standstill: {type(error).__name__}: {error}")
        finally:
            os._exit(0)
