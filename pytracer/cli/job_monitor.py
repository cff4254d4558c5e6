"""What `pytracer run` does while its job runs: samples it, and reports deaths and a hang."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytracer.cli.background import Background
from pytracer.cli.deaths import FAILED, DeathWatch
from pytracer.launcher.process_monitor import Watch
from pytracer.launcher.run_directory import Run
from pytracer.launcher.stall_detector import StallDetector

_REPORTS = 5  # at most: more reports of the same stall add nothing
_LAST_REPORT_SECONDS = 5.0  # limit for a report in progress when the job ends


class JobMonitor:
    """Called between waits for the job's processes."""

    def __init__(
        self, run: Run, save: Callable[[], None], hang_seconds: float | None, deaths: DeathWatch | None = None
    ) -> None:
        self._run = run
        self._save = save
        self.watch = Watch(run, save)
        self._seconds = hang_seconds
        self._stall = StallDetector(run.recording / "boxes", hang_seconds) if hang_seconds is not None else None
        self._next = 0.0
        self._reports = 0
        self.own: set[int] = set()
        self._hang = Background(self.own, "no report of the hang")
        self._deaths = deaths
        self._teller = Background(self.own, FAILED)

    def pause(self) -> float:
        """Runs what is due; returns the seconds until the next time."""
        now = time.monotonic()
        if now >= self._next:
            self.watch.look()
            self._tell_deaths()
            if self._stall is not None and self._stall.stalled():
                self._report()
            step = self.watch.seconds_to_next()
            self._next = time.monotonic() + min(step, self._seconds / 4 if self._seconds else step)
        return max(0.0, self._next - time.monotonic())

    def finish(self) -> None:
        """After the job ended."""
        self._hang.finish(_LAST_REPORT_SECONDS)
        if self._deaths is not None:
            self._teller.finish(self._deaths.seconds)
        self.watch.finish()

    def _tell_deaths(self) -> None:
        busy = self._teller.busy
        if self._deaths is None or not self._deaths.is_due(self.watch.take_ended()) or busy:
            return
        self._save()  # how the processes ended is in run.json, which the report reads
        self._teller.start(self._deaths.next_batch(self._run))

    def _report(self) -> None:
        if self._hang.busy or self._reports >= _REPORTS:
            return
        self._reports += 1

        def report() -> None:
            from pytracer.cli.attach import report_hang

            report_hang(self._run.recording, self._seconds or 0.0)

        self._hang.start(report)
