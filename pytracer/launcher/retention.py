"""Which runs lie below `runs/`, and which of them may be removed.

Only what is provably a finished run of ours is removed: a private directory of this user, directly below `runs/`, that
holds nothing but files of a run, and no process of which can still record. Everything else is left alone, with the
reason. Files are unlinked below descriptors, so that no link leads elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytracer._errors import RecordingError
from pytracer._paths import LATEST
from pytracer._private_files import private_directory
from pytracer.launcher.box_space import box_state, shrink_box
from pytracer.launcher.run_directory import (
    BOX_SUFFIX,
    BOXES,
    GPU_CORES,
    HELPER,
    REPORT_FILE,
    RUN_FILE,
    TASK_FILE,
    boot_id,
    is_name_of_run,
)  # fmt: skip

KEEP_FAILED = 20  # runs that failed, the newest: the budget never removes these
BUDGET_BYTES = 10 << 30
BUDGET_VARIABLE = "PYTRACER_RUNS_BYTES"
_LARGEST_JSON = 1 << 30
_SOCKET = "helper.sock"
_HELPER = re.compile(re.escape(HELPER) + r"\d+")
_GPU_CORE_SUFFIX = ".nvcudmp"
# Of a launcher that was killed while it wrote one.
_ASIDE = re.compile(r"\.(?:run(?:\.\d+)?|report|hang|symbols|reporter)\.json\.\d+(?:\.[0-9a-f]{8})?")
_SIZE = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE)
State = Literal["finished", "running", "kept"]


@dataclass(frozen=True)
class FoundRun:
    """A directory below `runs/`. `kept`: not provably a finished run of ours, `why` has the reason."""

    directory: Path
    state: State
    why: str
    nbytes: int  # on the disk
    began_wall_ns: int
    command: str = ""
    exit_code: int | None = None
    signal: int | None = None
    interrupted: bool = False  # the launcher did not see its end
    has_report: bool = False

    @property
    def clean(self) -> bool:
        """Ended with status 0, and there was nothing to report."""
        return self.state == "finished" and self.exit_code == 0 and not self.has_report


def parse_size(text: str) -> int:
    """`500M`, `10G` or `10GiB` in bytes.

    Raises:
        ValueError: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2].upper()]


def find_runs(root: Path) -> list[FoundRun]:
    """All directories below `runs/`, the newest first.

    Raises:
        OSError: it cannot be read.
    """
    with os.scandir(root) as entries:
        found = [_found(Path(entry.path)) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(found, key=lambda run: (run.began_wall_ns, run.directory.name), reverse=True)


def surplus(runs: Sequence[FoundRun], keep: int | None = None, most_bytes: int | None = None) -> list[FoundRun]:
    """The finished runs that go first.

    Args:
        runs: the newest first.
        keep: how many runs of any state stay, the newest.
        most_bytes: how many bytes may stay on the disk; the newest run stays in any case.
    """
    gone = [run for run in runs[keep:] if run.state == "finished"] if keep is not None else []
    if most_bytes is not None:
        rest = [run for run in runs if run not in gone]
        gone += _beyond(rest, [run for run in reversed(rest[1:]) if run.state == "finished"], most_bytes)
    return gone


def over_budget(runs: Sequence[FoundRun], most_bytes: int) -> list[FoundRun]:
    """What goes without being asked: clean runs, then those that failed but for the newest; the oldest first."""
    finished = [run for run in runs[1:] if run.state == "finished"]
    clean = [run for run in finished if run.clean]
    failed = [run for run in finished if not run.clean][KEEP_FAILED:]
    return _beyond(runs, [*reversed(clean), *reversed(failed)], most_bytes)


def _beyond(runs: Iterable[FoundRun], order: Iterable[FoundRun], most_bytes: int) -> list[FoundRun]:
    total, gone = sum(run.nbytes for run in runs), []
    for run in order:
        if total <= most_bytes:
            break
        gone.append(run)
        total -= run.nbytes
    return gone


def remove_run(run: FoundRun) -> str | None:
    """Removes a finished run; returns why it stays, or None."""
    now = _found(run.directory)  # it may have changed since it was listed
    if now.state != "finished":
        return now.why
    try:
        root = os.open(run.directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with private_directory(run.directory.name, root) as opened:
                for folder in (BOXES, GPU_CORES):
                    if folder in os.listdir(opened):
                        with private_directory(folder, opened) as below:
                            _unlink_ours(below, folder)
                        os.rmdir(folder, dir_fd=opened)
                _unlink_ours(opened)
            os.rmdir(run.directory.name, dir_fd=root)
            _unlink_latest(root, run.directory.name)
        finally:
            os.close(root)
    except (OSError, RecordingError) as error:
        return str(error)
    return None


def _unlink_ours(directory: int, folder: str = "") -> None:
    """Files of a run in an open directory; run.json, which proves that it is ours, is the last one."""
    for name in sorted(os.listdir(directory), key=lambda name: name == RUN_FILE):
        if _HELPER.fullmatch(name):
            _remove_helper(directory, name)
        elif _is_name_of_ours(folder, name):
            os.unlink(name, dir_fd=directory)


def _remove_helper(directory: int, name: str) -> None:
    """The directory in which a killed launcher's helper listened."""
    with private_directory(name, directory) as opened:
        for socket_name in os.listdir(opened):
            os.unlink(socket_name, dir_fd=opened)
    os.rmdir(name, dir_fd=directory)


def space_of(root: Path) -> int:
    """Bytes on the disk of everything below `runs/`, two folders deep."""
    total = 0
    for folder, folders, files in os.walk(root):
        if folder.removeprefix(str(root)).count("/") >= 2:
            folders.clear()
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def shrink_boxes(directory: Path) -> int:
    """Gives the empty pages of all finished recordings of a run back; returns how many bytes."""
    return sum(shrink_box(path) for path in (directory / BOXES).glob("*" + BOX_SUFFIX) if not path.is_symlink())


def remove_boxes(directory: Path) -> str | None:
    """Removes the recordings of a run that ended; returns why they stay, or None."""
    run = _found(directory)
    if run.state != "finished":
        return run.why
    try:
        with private_directory(directory) as opened, private_directory(BOXES, opened) as boxes:
            _unlink_ours(boxes, BOXES)
    except (OSError, RecordingError) as error:
        return str(error)
    return None


def _unlink_latest(root: int, name: str) -> None:
    """`latest`, if it is a link to what was removed."""
    try:
        if os.readlink(LATEST, dir_fd=root) == name:
            os.unlink(LATEST, dir_fd=root)
    except OSError:  # there is none, or it is no link
        pass


def _found(directory: Path) -> FoundRun:
    record = _record(directory / RUN_FILE)
    try:
        names = dict(_names(directory))
        tasks = [record, *(_record(path) for name, path in names.items() if TASK_FILE.fullmatch(name))]
        boxes = [path for name, path in names.items() if name.startswith(BOXES + "/")]
        nbytes = sum(path.lstat().st_blocks * 512 for path in names.values())
        began = _number(record, "started_wall_ns") or directory.lstat().st_mtime_ns
        why, running = _why_not(directory, tasks, names, boxes)
    except OSError as error:
        return FoundRun(directory, "kept", f"it cannot be read: {error.strerror}", 0, 0)
    command = record.get("command")
    return FoundRun(
        directory,
        "running" if running else "kept" if why else "finished",
        why,
        nbytes,
        began,
        " ".join(map(str, command)) if isinstance(command, list) else "",
        next((code for task in tasks if (code := _number(task, "exit_code"))), _number(record, "exit_code")),
        next((number for task in tasks if (number := _number(task, "signal"))), None),
        any(_number(task, "ended_mono_ns") is None for task in tasks),
        REPORT_FILE in names,
    )


def _names(directory: Path) -> Iterator[tuple[str, Path]]:
    """Everything in a directory and in its own folders, by name from there."""
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            folder = entry.name in (BOXES, GPU_CORES) or _HELPER.fullmatch(entry.name) is not None
            if folder and entry.is_dir(follow_symlinks=False):
                with os.scandir(entry.path) as inner:
                    yield from ((f"{entry.name}/{item.name}", Path(item.path)) for item in inner)
            else:
                yield entry.name, Path(entry.path)


def _why_not(
    directory: Path, tasks: Sequence[dict[str, object]], names: dict[str, Path], boxes: Sequence[Path]
) -> tuple[str, bool]:
    """Why a directory may not be removed, or ""; and whether that is because it is being recorded."""
    status = directory.lstat()
    if status.st_uid != os.geteuid():
        return "it belongs to another user", False
    foreign = next((name for name, path in names.items() if not _is_ours(name, path)), None)
    if foreign is not None:
        return f"it holds {foreign}, which is no file of a run", False
    record = tasks[0]
    if not record and not boxes:
        return "it holds neither run.json nor a recording", False
    states = [(path, box_state(path)) for path in boxes]
    broken = next((path.name for path, state in states if state is None), None)
    if broken is not None and not record:
        return f"{broken} is no recording", False
    alive = next((state.pid for _, state in states if state is not None and state.alive), None)
    if alive is not None:
        return f"process {alive} is recording", True
    if all(_number(task, "ended_mono_ns") is not None for task in tasks):
        return "", False
    origins = {(state.host, state.boot_id, state.pid) for _, state in states if state is not None}
    for task in tasks:
        if task and _number(task, "ended_mono_ns") is None:
            origins |= {(str(task.get("host")), str(task.get("boot_id")), _number(task, "pid") or 0)}
    return _unfinished(origins)


def _unfinished(origins: Iterable[tuple[str, str, int]]) -> tuple[str, bool]:
    """Of a run whose end was not recorded: its processes were of this machine, and are gone."""
    here, boot = socket.gethostname(), boot_id()
    for host, booted, pid in origins:
        if host != here:
            return f"its end was not recorded, and {host} may still run it", False
        if booted == boot and Path("/proc", str(pid)).exists():
            return f"process {pid} is running", True
    return "", False


def _is_ours(name: str, path: Path) -> bool:
    folder, _, rest = name.rpartition("/")
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    regular = stat.S_ISREG(mode) or (rest == _SOCKET and stat.S_ISSOCK(mode))
    return regular and _is_name_of_ours(folder, rest)


def _is_name_of_ours(folder: str, name: str) -> bool:
    if _HELPER.fullmatch(folder):
        return name == _SOCKET
    if folder:
        return name.endswith(BOX_SUFFIX if folder == BOXES else _GPU_CORE_SUFFIX)
    return is_name_of_run(name) or _ASIDE.fullmatch(name) is not None


def _record(path: Path) -> dict[str, object]:
    """run.json; empty when it is missing, or none of ours."""
    try:
        if path.is_symlink() or path.stat().st_size > _LARGEST_JSON:
            return {}
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) and record.get("schema") == "pytracer-run" else {}


def _number(record: dict[str, object], name: str) -> int | None:
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
