"""Deaths while the job goes on: one line on stderr, and the command of `run --on-death`.

A server restarts its workers, Ray its actors, torchrun its ranks: the report at the end of such a job may be days away.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytracer._printable import shell_command
from pytracer.cli.background import Background
from pytracer.cli.terminal import interject, say
from pytracer.launcher.process_monitor import Identity
from pytracer.launcher.run_directory import Run
from pytracer.launcher.supervise import signal_name

if TYPE_CHECKING:
    from pytracer.decode.types.snapshot import Job, Process
    from pytracer.report.job import ProcessReport, Report

FAILED = "no line about a death"
COMMAND_SECONDS = 60  # for all deaths that are told at once
_REPORT_SECONDS = 30.0
_AT_ONCE = 3  # lines of one batch
_PROMPT = 5  # batches that come as soon as they can; the others once in a while
_SELDOM_SECONDS = 60.0
# By these a process is asked to end. SIGKILL is none of them: it may be the OOM killer's.
_ORDERLY = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGALRM, signal.SIGTERM)


class DeathWatch:
    """Which deaths were told, and what is to be done about the next ones.

    Args:
        shown: the run directory, as the line names it.
        lines: whether a line is printed.
        command: of `--on-death`.
    """

    def __init__(self, shown: str, *, lines: bool, command: str | None) -> None:
        self._shown, self._lines, self._command = shown, lines, command
        self._waiting: list[Identity] = []
        self._told: set[Identity] = set()
        self._batches = 0
        self._last = 0.0
        self.seconds = _REPORT_SECONDS + (COMMAND_SECONDS if command is not None else 0)

    def is_due(self, ended: Sequence[Identity]) -> bool:
        """Whether deaths are to be told now; `ended`: the processes that have ended since the last call."""
        self._waiting += ended
        prompt = self._batches < _PROMPT or time.monotonic() - self._last >= _SELDOM_SECONDS
        return bool(self._waiting) and prompt and (self._lines or self._command is not None)

    def next_batch(self, run: Run) -> Callable[[], None]:
        """What tells the deaths so far, for a process of its own."""
        batch, earlier = frozenset(self._waiting), frozenset(self._told)
        self._batches, self._last = self._batches + 1, time.monotonic()
        self._told |= batch
        self._waiting = []

        def tell() -> None:
            with contextlib.suppress(OSError):
                os.nice(10)  # the job goes on
            job, report = _read(run)
            self._tell(job, report, batch, earlier)

        return tell

    def at_the_end(self, run: Run, ended: Sequence[Identity]) -> None:
        """Runs the command for deaths that were not told while the job ran; the report, which follows, is the line."""
        self._waiting += ended
        if self._waiting and self._command is not None:
            self._lines = False
            teller = Background(set(), FAILED)
            teller.start(self.next_batch(run))
            teller.finish(self.seconds)

    def _tell(self, job: Job, report: Report, batch: Collection[Identity], earlier: Collection[Identity]) -> None:
        deaths = list(_deaths(job, report, batch))
        if self._lines:
            for process, item in deaths[:_AT_ONCE]:
                interject(
                    f"{_line(process, item)}; `{shell_command('pytracer', 'inspect', self._shown)}` has the report"
                )
            if len(deaths) > _AT_ONCE:
                more = len(deaths) - _AT_ONCE
                interject(f"{more} more process{'es' * (more != 1)} died")
        if self._command is not None:
            until = time.monotonic() + COMMAND_SECONDS
            for _, item in deaths:
                run_command(self._command, _about(job, report, item, earlier), until)


def _read(run: Run) -> tuple[Job, Report]:
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.load import load_runs

    job = load_runs(run.recording, light=True)
    return job, build_report(job)


def _deaths(job: Job, report: Report, batch: Collection[Identity]) -> Iterator[tuple[Process, ProcessReport]]:
    """Those of a batch that are no orderly ends and no consequences, in the order of their ends."""
    found = [
        (process, item)
        for process, item in zip(job.processes, report.processes or (), strict=True)
        if (process.snapshot.pid, process.snapshot.start_ticks) in batch and _matters(process, item)
    ]
    yield from sorted(found, key=lambda pair: pair[1].ended or 0)


def _matters(process: Process, item: ProcessReport) -> bool:
    """Whether somebody waits to hear of it; of tools that a program starts, their parents get the status."""
    if item.primary is False:
        return False
    snapshot = process.snapshot
    worker = process.role in ("rank", "dataloader-worker") or bool(snapshot.versions.torch)
    if process.status_kind == "signaled":
        python = worker or (bool(snapshot.python_minor) and process.signal != signal.SIGKILL)
        return python and process.signal not in _ORDERLY
    return worker and (process.status_kind == "exception" or (process.role == "rank" and bool(process.exit_code)))


def _line(process: Process, item: ProcessReport) -> str:
    from pytracer._library_files import is_library_file
    from pytracer.analyze.naming import place_words
    from pytracer.render.processes import names_words, status_words

    stack = item.python_stack or (item.exception.python_stack if item.exception is not None else None) or []
    own = [frame for frame in stack if frame.line is not None and not is_library_file(frame.file)]
    place = f" at {place_words((own or stack)[0])}" if stack else ""
    name = names_words([item]) if item.rank is not None or item.worker is not None else item.name
    who = f"process {item.pid}" + (f" ({name})" if name else "")
    if process.status_kind == "exited":
        return f"{who} exited with status {process.exit_code}{place}"
    return f"{who} died of {status_words(item)}{place}"


def _about(job: Job, report: Report, item: ProcessReport, earlier: Collection[Identity]) -> Report:
    """The report whose verdict is about this death: the job's, or the one without the deaths that were told before."""
    if report.verdict is not None and report.verdict.pid == item.pid:
        return report
    from pytracer.analyze.engine import build_report

    rest = [p for p in job.processes if (p.snapshot.pid, p.snapshot.start_ticks) not in earlier]
    return build_report(replace(job, processes=tuple(rest)))


def run_command(command: str, report: Report, until: float) -> None:
    """Runs the command of `--on-death` with a report on its stdin; whatever goes wrong is one line.

    Args:
        command: for the shell. Its stdout is the launcher's stderr: the job's own stdout is the job's.
        report: for its stdin, as JSON.
        until: when it is ended, on the monotonic clock.
    """
    from pytracer.render.json import render_json

    text = render_json(report).encode()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=sys.stderr, start_new_session=True
        )
    except OSError as error:
        say(f"the command of --on-death was not started: {error.strerror}")
        return
    try:
        process.communicate(text, timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        say(f"the command of --on-death was ended: it took more than {COMMAND_SECONDS} s")
    else:
        if process.returncode > 0:
            say(f"the command of --on-death exited with status {process.returncode}")
        elif process.returncode < 0:
            say(f"the command of --on-death was ended by {signal_name(-process.returncode)}")
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it left running
        process.wait()
