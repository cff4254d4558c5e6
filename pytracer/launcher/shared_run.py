"""One run directory for the tasks of one step: `srun pytracer run`, `mpirun pytracer run`.

Each launcher keeps a record of its own: that of the first is run.json, which names the step; that of another one is
run.RANK.json. All of it rests on files that only one of several processes can create, so that it works on every file
system that the nodes share, without locks. docs/reference/launcher.md describes who reports, and when.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pytracer._errors import RecordingError, UsageError
from pytracer._paths import RUNS, file_system, is_remote, point_latest
from pytracer._private_files import create_private, private_directory
from pytracer.launcher.json_object import JsonObject
from pytracer.launcher.run_directory import (
    ENDED,
    REPORTER_FILE,
    RUN_FILE,
    TASK_FILE,
    Run,
    holds_recording,
    old_files,
    output_directory,
    prepared,
    record_text,
    start_record,
    write_text,
)
from pytracer.launcher.task import Task, launcher_lives

WAIT_SECONDS = 15.0  # how long the reporter waits for other tasks, unless --task-wait says otherwise
_REPORT_SECONDS = 60.0  # how long a task that failed waits for the report before it ends
_LAST_SECONDS = 1.0  # from the report to the reporter's own end
_POLL_SECONDS = 0.1
_CREATED_SECONDS = 5.0  # a record that another host creates is complete by then
_CLEARED_SECONDS = 30.0
_JOINED_SECONDS = 5.0  # after a task has started, those of other nodes have, too, if they see the directory
_HURRY_SECONDS = 0.5  # mpirun kills one second after its SIGTERM
_MOST_RUNS = 100  # of one step below runs/
_LARGEST_RECORD = 16 << 20
Sleep = Callable[[float], bool]  # returns whether to hurry: the launcher was asked to end


class _TakenError(Exception):
    """The directory holds another step's recording, or this task's own earlier one."""


def join_run(task: Task, record: JsonObject, output: Path | None, *, force: bool = False) -> Run:
    """The run that the tasks of this step share, with this task's record in it; created by the first of them.

    Args:
        task: this one.
        record: the beginning of its record.
        output: use this directory instead of one below runs/ that is named for the step.
        force: delete the recording of another step in `output`.

    Raises:
        RecordingError: the directory cannot be made or written, or is not ours alone.
        UsageError: `output` holds another recording, or this task's, and `force` does not apply.
    """
    record["task"] = task.as_dict()
    if output is not None:
        try:
            return _joined(output_directory(output), task, record, force=force)
        except _TakenError:
            raise holds_recording(output_directory(output)) from None
    root = Path(os.getcwd(), RUNS)
    for attempt in range(1, _MOST_RUNS + 1):
        with contextlib.suppress(_TakenError):
            return _joined(root / (task.word if attempt == 1 else f"{task.word}-{attempt}"), task, record)
    raise RecordingError(f"{root} holds {_MOST_RUNS} runs named {task.word}", "choose a directory with -o DIR")


def _joined(directory: Path, task: Task, record: JsonObject, *, force: bool = False) -> Run:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with private_directory(directory) as opened:
            name = _own_record(directory, opened, task, record, force)
    except FileExistsError as error:
        raise UsageError(f"{directory} is not a directory", "choose another one with -o DIR") from error
    except OSError as error:
        raise RecordingError(
            f"cannot write {directory}: {error.strerror or error}", "choose a writable directory with -o DIR"
        ) from error
    run = replace(prepared(directory), record_name=name, task=task)
    if not run.first:
        return replace(run, notes=())  # the first task's are the same
    note = point_latest(directory)
    return replace(run, notes=(*run.notes, note)) if note else run


def _own_record(directory: Path, opened: int, task: Task, record: JsonObject, force: bool) -> str:
    """Creates this task's record and returns its name."""
    content = record_text(record).encode("utf-8", "backslashreplace")
    for _ in range(3):
        found = _step_of(directory)
        if found is None:
            with old_files(opened) as old:
                # Recordings are created after run.json, so what is there without it is of another run.
                foreign = bool(old) and _step_of(directory) is None
            if not foreign:
                if create_private(RUN_FILE, content, opened):
                    return RUN_FILE
                continue
        elif found.get("step") == task.key:
            name = f"run.{task.rank}.json"
            if found.get("rank") != task.rank and create_private(name, content, opened):
                return name
            raise _TakenError
        if not force:
            raise _TakenError
        if _cleared(directory, opened, task):
            first = create_private(RUN_FILE, content, opened)  # else another task found the directory empty already
            os.rmdir(_clearing(task), dir_fd=opened)
            if first:
                return RUN_FILE
    raise _TakenError


def _cleared(directory: Path, opened: int, task: Task) -> bool:
    """Deletes an older recording, for --force: one of the tasks does, the others wait until it has begun the run."""
    try:
        os.mkdir(_clearing(task), mode=0o700, dir_fd=opened)
    except FileExistsError:
        until = time.monotonic() + _CLEARED_SECONDS
        while (_step_of(directory) or {}).get("step") != task.key:
            if time.monotonic() > until:
                raise RecordingError(
                    f"{directory / _clearing(task)} is in the way: a launcher ended while it deleted a recording",
                    "remove it, or choose another directory",
                ) from None
            time.sleep(_POLL_SECONDS)
        return False
    if (_step_of(directory) or {}).get("step") == task.key:  # another task was quicker, and has finished
        os.rmdir(_clearing(task), dir_fd=opened)
        return False
    with old_files(opened) as old:
        for below, name in sorted(old, key=lambda item: item[1] == RUN_FILE):
            os.unlink(name, dir_fd=below)
    return True


def _clearing(task: Task) -> str:
    return f".clearing.{task.word}"


def _step_of(directory: Path) -> Mapping[str, object] | None:
    """What run.json has of its task; None without that file, empty when no task wrote it."""
    until = time.monotonic() + _CREATED_SECONDS
    while True:
        try:
            content = _read(directory / RUN_FILE)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            return {}
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(content)
            task = record.get("task") if isinstance(record, dict) else None
            return task if isinstance(task, dict) else {}
        if content.strip().endswith(b"}") or time.monotonic() > until:
            return {}
        time.sleep(_POLL_SECONDS)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_LARGEST_RECORD)


def note_ended(run: Run, task: Task) -> None:
    """This task's record and recordings are complete.

    Raises:
        OSError: the directory cannot be written.
        RecordingError: it is not ours alone.
    """
    with private_directory(run.directory) as opened:
        create_private(f"{ENDED}{task.rank}", b"", opened)


def may_report(run: Run, task: Task, sleep: Sleep, *, failed: bool) -> bool:
    """Whether this task is the one that reports: the first that failed, or the last, if none did.

    The last one of a node waits until it is known whether other nodes see the directory.

    Raises:
        OSError: the directory cannot be written.
        RecordingError: it is not ours alone.
    """
    others = Others(run, task)
    while not failed and not others.all_ended():
        if not others.may_be_alone or sleep(_POLL_SECONDS):
            return False
    with private_directory(run.directory) as opened:
        return create_private(REPORTER_FILE, _reporter(reported=False).encode(), opened)


def _reporter(*, reported: bool) -> str:
    own = start_record(())
    identity = {name: own.get(name) for name in ("host", "boot_id", "pid", "start_ticks")}
    return json.dumps({**identity, "reported": reported})


def wait_for_others(run: Run, task: Task, seconds: float, sleep: Sleep) -> Others:
    """Waits until all other tasks that can end have ended, at most `seconds`; returns what is known of them then."""
    until = time.monotonic() + seconds
    others = Others(run, task)
    while not others.all_ended() and time.monotonic() < until:
        if sleep(max(_POLL_SECONDS, len(others.joined) / 1000)):
            until = min(until, time.monotonic() + _HURRY_SECONDS)
    return others


def wait_for_report(run: Run, seconds: float, sleep: Sleep) -> bool:
    """Waits until the reporter has reported and ended, within bounds; returns whether it had reported before.

    `srun --kill-on-bad-exit` and mpirun end all tasks, the reporter too, as soon as one of them ends with an error.
    """
    until = time.monotonic() + seconds + _REPORT_SECONDS
    reporter = _object(run.directory / REPORTER_FILE)
    before = done = reporter.get("reported") is not False
    while not before and launcher_lives(reporter) and time.monotonic() < until:
        if sleep(_POLL_SECONDS):
            until = min(until, time.monotonic() + _HURRY_SECONDS)
        reporter = _object(run.directory / REPORTER_FILE) or reporter
        if not done and reporter.get("reported") is True:
            done, until = True, min(until, time.monotonic() + _LAST_SECONDS)
    return before


def note_reported(run: Run) -> None:
    """The report is out: other tasks may end.

    Raises:
        RecordingError: the directory cannot be written.
    """
    write_text(run.directory / REPORTER_FILE, _reporter(reported=True))


class Others:
    """The tasks that have joined a run, by their files; `look` reads them anew."""

    def __init__(self, run: Run, task: Task) -> None:
        self._directory = run.directory
        self._task = task
        self._shared = is_remote(file_system(run.directory))
        self._launchers: dict[str, Mapping[str, object]] = {}
        started = _object(run.directory / run.record_name).get("started_mono_ns")
        self._known_at = (started if isinstance(started, int) else 0) / 1e9 + _JOINED_SECONDS
        self.joined: set[str] = set()
        self._ended = 0

    def all_ended(self) -> bool:
        """Whether every task that is expected here has ended, or at least its launcher has."""
        self._look()
        expected = self.expected
        if expected is not None and len(self.joined) < expected:
            return False
        return self._ended >= len(self.joined) or not self.running

    @property
    def expected(self) -> int | None:
        """How many tasks will join: those of this node alone, if no other node can see the directory."""
        own = self._task.node_count
        if own is None or self._shared or len(self.joined) > own or time.monotonic() < self._known_at:
            return self._task.count
        return own

    @property
    def may_be_alone(self) -> bool:
        """Whether all tasks of this node have ended, and those of other nodes may yet join."""
        own = self._task.node_count
        return not self._shared and own == len(self.joined) == self._ended and time.monotonic() < self._known_at

    @property
    def running(self) -> list[str]:
        """The names of the records whose tasks have not ended, as far as this machine can know."""
        return [name for name in sorted(self.joined) if not self._has_ended(name)]

    @property
    def absent(self) -> int:
        """How many tasks of the step recorded nothing here."""
        return max(0, (self._task.count or 0) - len(self.joined))

    def _look(self) -> None:
        """The directory is opened anew each time, which makes an NFS client ask its server."""
        names: list[str] = []
        with contextlib.suppress(OSError, RecordingError), private_directory(self._directory) as opened:
            names = os.listdir(opened)
        self.joined = {name for name in names if name == RUN_FILE or TASK_FILE.fullmatch(name)}
        self._ended = sum(name.startswith(ENDED) for name in names)

    def _has_ended(self, name: str) -> bool:
        if name not in self._launchers:
            record = _object(self._directory / name)
            if not record:
                return False  # it is being written
            self._launchers[name] = record
        record = self._launchers[name]
        task = record.get("task")
        rank = task.get("rank") if isinstance(task, dict) else None
        return (self._directory / f"{ENDED}{rank}").exists() or not launcher_lives(record)


def _object(path: Path) -> Mapping[str, object]:
    try:
        found = json.loads(_read(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
