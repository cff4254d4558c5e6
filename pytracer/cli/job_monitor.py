"""What `pytracer run` does while its job runs: samples it, and reports a hang."""

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
from pytracer.launcher.stall_detector import StallDetector

_REPORTS = 5  # at most: more reports of the same stall add nothing
_LAST_REPORT_SECONDS = 5.0  # limit for a report in progress when the job ends


class JobMonitor:
    """Called between waits for the job's processes."""

    def __init__(self, run: Run, save: Callable[[], None], hang_seconds: float | None) -> None:
        self._run = run
        self.watch = Watch(run, save)
        self._seconds = hang_seconds
        self._stall = StallDetector(run.recording / "boxes", hang_seconds) if hang_seconds is not None else None
        self._next = 0.0
        self._reporter = 0
        self._reports = 0
        self.own: set[int] = set()

    def pause(self) -> float:
        """Runs what is due; returns the seconds until the next time."""
        now = time.monotonic()
        if now >= self._next:
            self.watch.look()
            self._reap_reporter(os.WNOHANG)
            if self._stall is not None and self._stall.stalled():
                self._report()
            step = self.watch.seconds_to_next()
            self._next = time.monotonic() + min(step, self._seconds / 4 if self._seconds else step)
        return max(0.0, self._next - time.monotonic())

    def finish(self) -> None:
        """After the job ended."""
        until = time.monotonic() + _LAST_REPORT_SECONDS
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
        """In a child process, so that signals to the job are forwarded meanwhile."""
        if self._reporter or self._reports >= _REPORTS:
            return
        self._reports += 1
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:  # the process limit is reached
            return
        if pid:
            self._reporter = pid
            self.own.add(pid)
            return
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            from pytracer.cli.attach import report_hang

            report_hang(self._run.recording, self._seconds or 0.0)
        except BaseException as error:  # this process must never return into the launcher
            with contextlib.suppress(Exception):
                say(f"no report of the hang: {type(error).__name__}: {error}")
        finally:
            os._exit(0)
