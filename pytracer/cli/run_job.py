"""Waits for the command of `pytracer run` and samples its processes: whatever fails here, the job goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

from pytracer.cli.deaths import DeathWatch
from pytracer.cli.hangs import HangSettings
from pytracer.cli.job_monitor import JobMonitor
from pytracer.cli.run_programs import command_error
from pytracer.cli.terminal import one_line_for_an_error, say
from pytracer.launcher import run_directory
from pytracer.launcher.helper import helper
from pytracer.launcher.process_monitor import Identity
from pytracer.launcher.start import StartError
from pytracer.launcher.subreaper import adopt
from pytracer.launcher.supervise import FORWARDED, Ending, held, supervise


class MonitoredJob:
    """Waits for the job, samples it, and keeps `record` on disk up to date."""

    def __init__(
        self, run: run_directory.Run, record: dict[str, object], hang: HangSettings, deaths: DeathWatch
    ) -> None:
        """Writes run.json for the first time.

        Raises:
            RecordingError: it cannot be written.
        """
        self._run = run
        self._record = record
        # One of several launchers looks for a hang.
        hang = hang if run.first else HangSettings("off")
        self._monitor = JobMonitor(run, self._save, hang, deaths)
        record["witness"] = self._monitor.watch.as_dict()
        if run.recording != run.directory:
            record["recording"] = str(run.recording)
        run_directory.write_record(run, record)

    @property
    def ended(self) -> list[Identity]:
        """Processes whose end was seen too late for `DeathWatch`: when the job had ended."""
        return self._monitor.watch.take_ended(last=True)

    def run_job(
        self, program: str, job: tuple[str, ...], environment: dict[str, str], subreaper: bool, mask: set[int]
    ) -> Ending:
        """Runs the job to its end; `mask`: the signals that it finds blocked.

        Raises:
            CommandError: it could not be started.
        """
        watch, own = self._monitor.watch, self._monitor.own
        # The first process of a pid namespace is the parent of all orphans anyway, and no other process reaps them.
        adopted = adopt(watch.note_orphan, lambda: own) if subreaper or os.getpid() == 1 else None
        if subreaper and adopted is None:
            say("this kernel has no subreaper: ends of orphans may be missing")
        helping = contextlib.ExitStack()
        with one_line_for_an_error():
            note = helping.enter_context(helper(self._run))
            if note:
                say(note)
        try:
            pause = _never_raising(self._monitor.pause)
            ending = supervise_command(program, job, environment, self._started, pause, adopted, mask)
        finally:
            with one_line_for_an_error():
                helping.close()
        with held(FORWARDED), one_line_for_an_error():
            self._monitor.finish()
        self._record["witness"] = watch.as_dict()
        self._record["killed_for"] = self._monitor.killed_for
        self._record["killed"] = sorted(set(self._monitor.killed))
        return ending

    def _started(self, pid: int) -> None:
        self._record["child_pid"] = pid
        self._monitor.started(pid)
        self._save()

    def _save(self) -> None:
        with one_line_for_an_error():
            self._record["witness"] = self._monitor.watch.as_dict()
            run_directory.write_record(replace(self._run, directory=self._run.recording), self._record)


def supervise_command(
    program: str,
    job: tuple[str, ...],
    environment: dict[str, str],
    started: Callable[[int], None] = lambda _: None,
    pause: Callable[[], float | None] = lambda: None,
    adopted: Callable[[int], None] | None = None,
    mask: set[int] | None = None,
) -> Ending:
    """`supervise`, with a message for a command that cannot be executed.

    Raises:
        CommandError: it could not be started.
    """
    try:
        return supervise(program, job, environment, started, pause, adopted, mask)
    except StartError as error:
        raise command_error(job[0], error.error) from error


def _never_raising(pause: Callable[[], float]) -> Callable[[], float | None]:
    """`pause`, until it fails once: the launcher waits for the job even if monitoring fails."""
    failed = False

    def careful() -> float | None:
        nonlocal failed
        seconds: float | None = None
        if not failed:
            failed = True
            with one_line_for_an_error():
                seconds = pause()
                failed = False
        return seconds

    return careful


def end_like(ending: Ending) -> int:
    """The status to return. A job that died of Ctrl-C: this process dies of it, too, or a shell's loop would go on."""
    if ending.signal == signal.SIGINT:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return ending.status
