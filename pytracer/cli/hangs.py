"""What `pytracer run` says, and does if asked, when its job stands still.

A deadlock that the recordings prove is one line within seconds, and the report of `pytracer attach` is stored. Anything
else that stands still for long is a note: a long checkpoint looks the same. No process of the job is asked, stopped or
ended, unless `--hang-action` or `--hang-timeout` says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytracer._errors import PytracerError
from pytracer._printable import shell_command
from pytracer.cli.background import Background
from pytracer.cli.terminal import interject
from pytracer.launcher.hang_watch import HangWatch, Work
from pytracer.launcher.process_monitor import Watch
from pytracer.launcher.run_directory import Run
from pytracer.launcher.stall_detector import StallDetector

if TYPE_CHECKING:
    from pytracer.report.live import LiveReport

HangAction = Literal["tell", "dump", "kill", "off"]
ACTIONS: tuple[HangAction, ...] = ("tell", "dump", "kill", "off")
SPEED_VARIABLE = "PYTRACER_HANG_SPEED"  # seconds of the watcher's patience per second, for tests of long pauses
NOTE_SECONDS = 600.0
_NOTE_LOOK_SECONDS = 10.0
_REPORTS = 5  # at most: more reports of the same stall add nothing
_LAST_REPORT_SECONDS = 5.0  # limit for a report in progress when the job ends
_KILL_SECONDS = 40.0  # torchrun gives its workers 30 s after SIGTERM
_GROUPS = 2


@dataclass(frozen=True)
class HangSettings:
    """`timeout`: what stands still for so many seconds is reported with all stacks. `speed`: see SPEED_VARIABLE.

    `digest`: where a digest of the job as it stands is written.
    """

    action: HangAction = "tell"
    timeout: float | None = None
    quiet: bool = False
    speed: float = 1.0
    digest: str | None = None


class HangMonitor:
    """Called every two seconds while the job runs."""

    def __init__(self, run: Run, watch: Watch, own: set[int], settings: HangSettings) -> None:
        boxes = run.recording / "boxes"
        self._run = run
        self._watch = watch
        self._settings = settings
        self._hang = HangWatch(boxes, watch.ended)
        self._work = Work()
        self._due = False
        self._asked = False
        self._told: set[str] = set()
        self._pipe = -1
        self._reports = 0
        self._note_at = 0.0
        self._task = Background(own, "no report of the hang")
        self._kill_at: float | None = None
        self.child = 0  # the job's first process
        self.killed_for: str | None = None  # why the job was ended
        self.killed: list[int] = []  # what had not ended by then
        timeout = settings.timeout
        self._stall = StallDetector(boxes, timeout) if timeout is not None else None
        self._still = StallDetector(boxes, NOTE_SECONDS, grows=True, speed=settings.speed)

    @property
    def step(self) -> float | None:
        """The most seconds between two looks."""
        return self._settings.timeout / 4 if self._settings.timeout is not None else None

    def look(self) -> None:
        """Runs what is due."""
        self._take_result()
        if self._kill_at is not None:
            self._kill_what_is_left()
            return
        if self._stall is not None and self._stall.stalled():
            self._report(self._settings.timeout)
            if self._settings.action == "kill":
                self._end_job(f"no process recorded anything for {self._settings.timeout:g} s")
        if self._settings.action == "off":
            return
        self._due = self._hang.due() or self._due
        if self._due and not self._task.busy:
            self._due = False
            self._start(self._tell_deadlock)
        if self._stall is None and not self._settings.quiet:
            self._look_for_progress()

    def finish(self) -> None:
        """After the job ended."""
        self._task.finish(_LAST_REPORT_SECONDS)
        self._take_result()
        if self._kill_at is not None:
            self._kill_what_is_left(now=True)

    # ---- a deadlock ----

    def _start(self, task: Callable[[int], None]) -> None:
        read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        started = self._task.start(lambda: task(write_end))
        os.close(write_end)
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = read_end if started else -1
        if not started:
            os.close(read_end)

    def _take_result(self) -> None:
        """What the task has told, once it has ended."""
        if self._pipe < 0 or self._task.busy:
            return
        with contextlib.suppress(OSError):
            key, _, says = os.read(self._pipe, 4096).decode("utf-8", "replace").partition("\n")
            self._told |= {key} if key else set()
            if key and self._settings.action == "kill" and self._kill_at is None:
                self._end_job(says)
        os.close(self._pipe)
        self._pipe = -1

    def _tell_deadlock(self, result: int) -> None:
        """In the task's process."""
        from pytracer.analyze.collectives.deadlock import deadlock_line, gone_by
        from pytracer.cli.attach import recorded_state, report_hang, store_hang

        os.nice(10)
        gone = gone_by(self._watch.ended(0))
        report = self._state_or_none(lambda: recorded_state(self._run.recording, gone))
        found = report.deadlock if report is not None else None
        if report is None or found is None:
            return
        key = f"{found.kind} {found.group} {found.sequence_nr} {found.awaited}"
        if key in self._told:
            return
        interject(f"deadlock: {deadlock_line(found)}")
        action = self._settings.action
        if action == "tell":
            store_hang(self._run.recording, report)
            interject(f"nothing was ended; {self._attach()} shows where each rank stands")
        else:
            report_hang(self._run.recording, None, gone, goes_on=action != "kill")
        os.write(result, f"{key}\n{found.says}"[:2048].encode())
        self._write_digest()

    @staticmethod
    def _state_or_none(state: Callable[[], LiveReport]) -> LiveReport | None:
        from pytracer._errors import InputError

        try:
            return state()
        except InputError:  # the job has ended meanwhile
            return None

    def _attach(self) -> str:
        return f"`{shell_command('pytracer', 'attach', str(self._run.recording))}`"

    # ---- no progress ----

    def _look_for_progress(self) -> None:
        now = time.monotonic()
        if now < self._note_at or self._task.busy:
            return
        self._note_at = now + _NOTE_LOOK_SECONDS / self._settings.speed
        if self._still.stalled():
            self._asked = True
            self._work.restart()
        if not self._asked:
            return
        if self._still.seconds < NOTE_SECONDS:  # it moves again
            self._asked = False
            return
        free = [seen.pid for seen in self._watch.running() if not self._hang.waits(seen.pid)]
        busy = self._work.busy(free)
        if busy is None and free:
            return
        self._asked = False
        if busy:  # a long evaluation, compilation or checkpoint
            self._still.wait_longer()
        elif not self._told and self._reports < _REPORTS:
            self._reports += 1
            seconds = self._still.seconds
            self._start(lambda _: self._note(seconds))

    def _note(self, seconds: float) -> None:
        """In the task's process."""
        from pytracer.cli.attach import recorded_state, store_hang

        os.nice(10)
        report = self._state_or_none(lambda: recorded_state(self._run.recording))
        if report is None:
            return
        report.still_for_seconds = round(seconds, 1)
        store_hang(self._run.recording, report)
        waits = " ".join(wait.says for wait in report.waits[:_GROUPS]) or "No collective is open."
        interject(f"note: no process has recorded anything for {seconds / 60:.0f} min. {waits}")
        interject(f"note: it may be a long checkpoint or slow storage; {self._attach()} shows where each process is")
        self._write_digest()

    def _write_digest(self) -> None:
        """For whoever looks from elsewhere; that of the end replaces it. The last thing in the task's process."""
        if self._settings.digest is None:
            return
        from pytracer.cli.digest import SECONDS, write_digest

        signal.alarm(SECONDS)  # ends this process: an object store may never answer
        try:
            place, _, _ = write_digest(
                [self._run.recording], self._settings.digest, as_folder=True, named=self._run.directory
            )
            interject(f"a digest of the job as it stands is in {place}")
        except PytracerError as error:
            interject(f"no digest of the job as it stands: {error}")

    # ---- what the user asked for ----

    def _report(self, seconds: float | None) -> None:
        """With all stacks."""
        if self._task.busy or self._reports >= _REPORTS:
            return
        self._reports += 1
        ended = self._watch.ended(0)

        def report() -> None:
            from pytracer.analyze.collectives.deadlock import gone_by
            from pytracer.cli.attach import report_hang

            report_hang(self._run.recording, seconds, gone_by(ended), goes_on=self._settings.action != "kill")
            self._write_digest()

        self._task.start(report)

    def _end_job(self, why: str) -> None:
        """SIGTERM to the job's first process, which ends the others as it does below a scheduler."""
        self._task.finish(_LAST_REPORT_SECONDS)
        self._kill_at = time.monotonic() + _KILL_SECONDS
        self.killed_for = why
        rest = f"SIGKILL to what is left in {_KILL_SECONDS:.0f} s"
        interject(f"--hang-action kill: SIGTERM to process {self.child}, {rest}")
        with contextlib.suppress(OSError):
            os.kill(self.child, signal.SIGTERM)  # supervise() reaps it in this thread, so the pid is its own

    def _kill_what_is_left(self, *, now: bool = False) -> None:
        if not now and (self._kill_at is None or time.monotonic() < self._kill_at):
            return
        for seen in self._watch.running():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(seen.descriptor, signal.SIGKILL)
                self.killed.append(seen.pid)
        if not now:
            with contextlib.suppress(OSError):
                os.kill(self.child, signal.SIGKILL)


def speed_of(text: str | None) -> float:
    """The value of SPEED_VARIABLE; 1 when it is unset or no positive number."""
    try:
        speed = float(text or 1)
    except ValueError:
        return 1.0
    return speed if 0 < speed < 1e6 else 1.0
