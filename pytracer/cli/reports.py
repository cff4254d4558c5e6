"""The report of what the user named: run directories, recordings. Shared by all commands that show one."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer._errors import PytracerError, UsageError
from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import say

if TYPE_CHECKING:
    from pytracer.report.job import Report

LATEST = Path("runs/latest")


def given_or_latest(runs: Sequence[Path]) -> Sequence[Path]:
    """The runs that were named; else the newest one below the current directory.

    Raises:
        UsageError: none was named, and there is none.
    """
    if runs:
        return runs
    if not LATEST.exists():
        raise UsageError(
            "no RUN was given and there is no runs/latest here", hint="name the run directory: pytracer inspect RUN"
        )
    return [LATEST]


def read_report(
    runs: Sequence[Path],
    dumps: Sequence[Path] = (),
    attempt: int | None = None,
    *,
    progress: bool = True,
    again: bool = False,
    program: Sequence[str] = (),
) -> Report:
    """The report of one job: of its recordings, or the one that is stored in a bundle.

    Args:
        runs: as for `load_runs`.
        dumps: dumps of torch's Flight Recorder.
        attempt: of a restarted job.
        progress: show a bar on a terminal.
        again: analyze the recordings in a bundle, too.
        program: installed packages whose files count as the program's own.

    Raises:
        InputError: nothing can be read.
        UsageError: there is no such attempt.
    """
    from pytracer.analyze.engine import build_report
    from pytracer.analyze.stored import stored_report
    from pytracer.decode.job.load import load_runs

    if len(runs) == 1 and not dumps and attempt is None and not again and not program:
        stored = stored_report(runs[0])
        if stored is not None:
            return stored
    with progress_bar("Reading recordings", wanted=progress) as bar:
        return build_report(load_runs(runs, dumps, bar, light=True), attempt, program)


def read_digests(
    places: Sequence[str],
    recordings: Sequence[str] = (),
    attempt: int | None = None,
    dumps: Sequence[Path] = (),
    *,
    progress: bool = True,
) -> Report:
    """The report of one job, of the digests of its nodes.

    Args:
        places: digests, or folders of them; paths or URLs.
        recordings: folders or URLs in which the recordings of suspects may be.
        attempt: of a restarted job.
        dumps: dumps of torch's Flight Recorder.
        progress: show a bar on a terminal.

    Raises:
        InputError: nothing can be read.
        UsageError: there is no such attempt.
    """
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.digests import load_digests

    with progress_bar("Reading digests", wanted=progress) as bar:
        return build_report(load_digests(places, recordings, bar, dumps), attempt)


def with_history(report: Report, url: str) -> Report:
    """With what the history has of such deaths; without the store there is one line on stderr, and the report."""
    from msgspec.structs import replace

    from pytracer.history.fingerprint import fingerprint
    from pytracer.history.rows import ENDED_WELL, run_key
    from pytracer.report.of_verdict import subject_of

    if report.verdict is None or report.verdict.class_ in ENDED_WELL:
        return report
    try:
        from pytracer.history.database import Database
        from pytracer.history.questions import seen
        from pytracer.history.store import Store

        died = subject_of(report)
        with Database(Store(url)) as db:
            found = seen(db, fingerprint(report), died.host if died is not None else None, run_key(report))
    except PytracerError as error:
        say(f"--history: {error}")
        return report
    return replace(report, seen=found)


def redacted(report: Report) -> Report:
    """The report without what is private, the reader's own name and machine included."""
    from pytracer.analyze.redaction.report import redact_report

    try:
        users = [getpass.getuser()]
    except (KeyError, OSError):  # a user id without a name
        users = []
    return redact_report(report, users=users, hosts=[socket.gethostname()])
