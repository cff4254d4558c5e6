"""The end of one of several launchers that share a run: which of them reports, when, and what the others print.

The first task whose command failed reports, after the others have ended or a bounded time; if none failed, the last one
does. Everything else that a launcher prints at the end of its task is at most one line.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from pytracer._printable import shell_command
from pytracer._text import count_words
from pytracer.cli.terminal import say
from pytracer.launcher.run_directory import Run
from pytracer.launcher.shared_run import (
    Others,
    may_report,
    note_ended,
    note_reported,
    wait_for_others,
    wait_for_report,
)
from pytracer.launcher.supervise import FORWARDED, Ending
from pytracer.launcher.task import Task

_QUIET_SECONDS = 2.0  # a wait that is shorter needs no announcement


def conclude_task(
    run: Run, task: Task, ending: Ending, shown: str, seconds: float, *, conclude: Callable[[], None]
) -> None:
    """Runs `conclude` in one task of the run; in the others, waits until that is done if their command failed.

    Must be called with the signals in FORWARDED blocked: one of them, which the launcher's own end is announced by,
    cuts the waits short.

    Args:
        run: the shared run.
        task: this one, whose recordings are complete.
        ending: how its command ended.
        shown: the run directory, for sentences.
        seconds: how long the reporter waits for other tasks.
        conclude: prints the report of the whole job.

    Raises:
        OSError: the run directory cannot be written.
        RecordingError: it is not ours alone.
    """
    note_ended(run, task)
    failed = ending.status != 0
    if may_report(run, task, _sleep, failed=failed):
        try:
            others = wait_for_others(run, task, min(seconds, _QUIET_SECONDS), _sleep)
            if seconds > _QUIET_SECONDS and not others.all_ended():
                rest = seconds - _QUIET_SECONDS
                say(f"rank {task.rank} {ending.words}; the report follows in {rest:g} s, or when all tasks have ended")
                others = wait_for_others(run, task, rest, _sleep)
            conclude()
            for line in _left_out(others, task, shown):
                say(line)
        finally:
            note_reported(run)
    elif failed and wait_for_report(run, seconds, _sleep):
        say(f"rank {task.rank} {ending.words} after the report; `{shell_command('pytracer', 'inspect', shown)}` has it")


def _left_out(others: Others, task: Task, shown: str) -> list[str]:
    """What the report lacks: tasks that still run, tasks that recorded elsewhere."""
    lines = []
    running = len(others.running)
    again = shell_command("pytracer", "inspect", shown)
    if running:
        are = "was" if running == 1 else "were"
        tasks = count_words(running, "task")
        lines.append(f"{tasks} {are} still running at the time of the report; `{again}` makes it again")
    if others.absent and others.expected != task.count:
        lines.append(
            f"this report is of the {count_words(len(others.joined), 'task')} on {task.node}; the other "
            f"{others.absent} recorded on their own nodes: copy those directories here, and "
            f"`{shell_command('pytracer', 'inspect', shown)} COPY...` reads them as one job"
        )
    elif others.absent:
        lines.append(f"{others.absent} of {task.count} tasks recorded nothing in {shown}")
    return lines


def _sleep(seconds: float) -> bool:
    """Waits; returns whether the launcher was asked to end meanwhile."""
    taken = signal.sigtimedwait(FORWARDED, seconds)
    return taken is not None and taken.si_signo not in (signal.SIGUSR1, signal.SIGUSR2)
