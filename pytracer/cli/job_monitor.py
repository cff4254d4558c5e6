"""What `pytracer run` does while its job runs: samples it, and reports deaths and hangs."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytracer.cli.background import Background
from pytracer.cli.deaths import FAILED, DeathWatch
from pytracer.cli.hangs import HangMonitor, HangSettings
from pytracer.launcher.process_monitor import Watch
from pytracer.launcher.run_directory import Run


class JobMonitor:
    """Called between waits for the job's processes."""

    def __init__(self, run: Run, save: Callable[[], None], hang: HangSettings, deaths: DeathWatch) -> None:
        self._run = run
        self._save = save
        self.watch = Watch(run, save)
        self._next = 0.0
        self.own: set[int] = set()
        self._hangs = HangMonitor(run, self.watch, self.own, hang)
        self._deaths = deaths
        self._teller = Background(self.own, FAILED)

    def started(self, pid: int) -> None:
        """The job's first process runs."""
        self._hangs.child = self.watch.unseen.child = pid

    @property
    def killed_for(self) -> str | None:
        """Why the launcher ended the job, if it did."""
        return self._hangs.killed_for

    @property
    def killed(self) -> list[int]:
        """The pids of what it killed then."""
        return self._hangs.killed

    def pause(self) -> float:
        """Runs what is due; returns the seconds until the next time."""
        now = time.monotonic()
        if now >= self._next:
            self.watch.look()
            self._tell_deaths()
            self._hangs.look()
            step = self.watch.seconds_to_next()
            self._next = time.monotonic() + min(step, self._hangs.step or step)
        return max(0.0, self._next - time.monotonic())

    def finish(self) -> None:
        """After the job ended."""
        self._hangs.finish()
        self._teller.finish(self._deaths.seconds)
        self.watch.finish()

    def _tell_deaths(self) -> None:
        busy = self._teller.busy
        if not self._deaths.is_due(self.watch.take_ended()) or busy:
            return
        self._save()  # how the processes ended is in run.json, which the report reads
        self._teller.start(self._deaths.next_batch(self._run))
