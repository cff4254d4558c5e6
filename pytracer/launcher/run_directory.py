"""The run directory of a traced job, its environment and `run.json`.

Standard library only: the launcher stays small while the job runs. `cli/run_job.py` starts the command and waits for
it; `scripts/pytracer-run` does the same as this module by environment alone. The preloaded core writes everything that
the job itself records.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer._errors import RecordingError, UsageError
from pytracer._paths import RUNS, built_core, command_word, file_system, is_remote, point_latest
from pytracer._private_files import copy_private, made_directory, private_directory, write_private
from pytracer._version import __version__
from pytracer.blackbox.numbers import LEVELS
from pytracer.blackbox.redaction import redact_words
from pytracer.launcher.json_object import JsonObject

if TYPE_CHECKING:
    from pytracer.launcher.task import Task

CUDA_GRAPHS = ("warn",)
RUN_FILE = "run.json"
TASK_FILE = re.compile(r"run\.(\d{1,9})\.json")  # of each further launcher that shares the directory
REPORTER_FILE = "reporter.json"
ENDED = "ended."  # and the rank: this task's record and recordings are complete
HELPER = "helper."  # and the rank of the task that it serves
BOXES = "boxes"
GPU_CORES = "gpu-cores"
BOX_SUFFIX = ".blackbox"
COUNTERS = "counters."  # and the name of a host: csrc/crashsafe/file/run_counters.h
REPORT_FILE = "report.json"
HANG_FILE = "hang.json"
OWN_FILES = (RUN_FILE, REPORT_FILE, HANG_FILE, REPORTER_FILE, "symbols.json", "helper.sock")

_ASAN = ("libasan.so", "libclang_rt.asan")  # AddressSanitizer's runtime, which must come first if it is preloaded
ROOM_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Run:
    """A run directory, ready to be recorded into.

    `directory` is the one shown to the user; `recording` is the value of PYTRACER_DIR: the same, or a local directory
    if `directory` is on a file system that must not hold mapped files. `notes` are lines for the user. Tasks of one
    step share a directory (`shared_run.py`): `record_name` is then the file of this launcher's own record, and `task`
    this task.
    """

    directory: Path
    recording: Path
    notes: tuple[str, ...] = ()
    record_name: str = RUN_FILE
    task: Task | None = None

    @property
    def boxes(self) -> Path:
        """Where the recordings are once the job has ended."""
        return self.directory / BOXES

    @property
    def first(self) -> bool:
        """Whether this launcher is the only one of the run, or the one that created it."""
        return self.record_name == RUN_FILE

    @property
    def helper(self) -> Path:
        """Where this launcher's helper listens."""
        own = self.task is not None and self.recording == self.directory
        return self.recording / f"{HELPER}{self.task.rank}" if own and self.task is not None else self.recording


def core_library() -> Path:
    """The library to preload.

    Raises:
        RecordingError: it was not built, or its path cannot be preloaded.
    """
    path = built_core()
    if re.search(r"[\s:]", str(path)):
        raise RecordingError(
            f"LD_PRELOAD separates by spaces and colons and cannot carry the path {path}",
            "install pytracer below another directory",
        )
    return path


def create_run(command: Sequence[str], output: Path | None = None, *, force: bool = False) -> Run:
    """Creates the run directory, `boxes/` inside it and, below `runs/`, the link `runs/latest`.

    Args:
        command: what will run; names the directory.
        output: use this directory instead of `runs/<time>-<word>-<pid>`; made when missing.
        force: delete the recording that `output` already holds.

    Raises:
        RecordingError: the directory cannot be made or written, or is not ours alone.
        UsageError: `output` already holds a recording and `force` was not given.
    """
    _current_directory()
    directory = output_directory(output) if output is not None else _new_directory(command)
    if output is not None:
        _prepare_output(directory, force)
    run = prepared(directory)
    note = point_latest(directory)
    return replace(run, notes=(*run.notes, note)) if note else run


def prepared(directory: Path) -> Run:
    """A directory that holds no recording, or one that it is shared with, made ready to be recorded into.

    Raises:
        RecordingError: it cannot be written, or is not ours alone.
    """
    notes: list[str] = []
    recording = directory
    kind = file_system(directory)
    if is_remote(kind):
        recording = _local_directory(directory, kind)
        notes.append(f"{directory} is on {kind}: black boxes are written to {recording} and moved there at the end")
    try:
        with private_directory(recording) as opened, made_directory(BOXES, opened):
            pass
    except OSError as error:
        raise _cannot_write(recording / BOXES, error) from error
    if not os.access(recording / BOXES, os.W_OK | os.X_OK):
        raise _cannot_write(recording / BOXES, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    _check_room(recording)
    return Run(directory, recording, tuple(notes))


def checked_level(level: str | None, base: Mapping[str, str] | None = None) -> str:
    """The level to record with: `level`, else PYTRACER_LEVEL of `base` (None: of this process), else "default".

    Raises:
        UsageError: PYTRACER_LEVEL holds another word.
    """
    level = level or (os.environ if base is None else base).get("PYTRACER_LEVEL") or "default"
    if level not in LEVELS:
        raise UsageError(f"PYTRACER_LEVEL is {level!r}", f"use one of {', '.join(LEVELS)}")
    return level


def environment(
    run: Run,
    level: str,
    base: Mapping[str, str] | None = None,
    *,
    guard: str | None = None,
    cuda_graphs: str | None = None,
    values: bool = True,
) -> dict[str, str]:
    """The environment of the traced command: `base` (None: of this process) and what starts the core.

    `guard` are the words of guard mode, see `record/guard_mode.py`; `cuda_graphs` is one of CUDA_GRAPHS;
    `values`: whether a crash may record values of tensors.

    Raises:
        RecordingError: the core is not built.
    """
    result = given_environment() if base is None else dict(base)
    core = str(core_library())
    others = [item for item in re.split(r"[\s:]+", result.get("LD_PRELOAD", "")) if item and item != core]
    first = [item for item in others if os.path.basename(item).startswith(_ASAN)]
    result["LD_PRELOAD"] = ":".join([*first, core, *(item for item in others if item not in first)])
    result["PYTRACER_DIR"] = str(run.recording)
    result["PYTRACER_LEVEL"] = level
    result["PYTRACER_LAUNCHER"] = "1"
    if run.helper != run.recording:
        result["PYTRACER_HELPER"] = str(run.helper)
    filters = seccomp_filters()
    if filters is not None:
        result["PYTRACER_SECCOMP_FILTERS"] = str(filters)
    if guard is not None:
        result["PYTRACER_GUARD"] = guard
    if cuda_graphs is not None:
        result["PYTRACER_CUDA_GRAPHS"] = cuda_graphs
    if not values:
        result["PYTRACER_NO_VALUES"] = "1"
    return result


def seccomp_filters() -> int | None:
    """The number of seccomp filters of this process: a process of the job that begins with more is in a sandbox.

    None if the kernel does not report it, before Linux 5.9.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Seccomp_filters:"):
                return int(line.partition(":")[2])
    return None


def boot_id() -> str:
    """Of this kernel; empty when it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat, which distinguishes a process from another one with the same pid (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def start_record(command: Sequence[str]) -> JsonObject:
    """The beginning of `run.json`: what is known before the command starts. Times as in `snapshot.LauncherRecord`.

    Parts of the command that are not UTF-8 are written as hex escapes, with the exact bytes of the whole command beside
    them.
    """
    words, redacted = redact_words(command)
    return {
        "schema": "pytracer-run",
        "version": 1,
        "pytracer": __version__,
        "pid": os.getpid(),
        "start_ticks": start_ticks(os.getpid()),
        "host": socket.gethostname(),
        "boot_id": boot_id(),
        "command": words,
        "redacted": redacted,
        **({"command_hex": [os.fsencode(word).hex() for word in words]} if _as_text(words) != words else {}),
        "cwd": _current_directory(),
        "started_wall_ns": time.time_ns(),
        "started_mono_ns": time.monotonic_ns(),
        "ended_mono_ns": None,
        "child_pid": None,
        "exit_code": None,
        "signal": None,
    }


def write_record(run: Run, record: Mapping[str, object]) -> None:
    """Writes the launcher's record to a temporary file and renames it, so that it is never incomplete.

    Raises:
        RecordingError: the directory cannot be written, or the disk is full.
    """
    write_text(run.directory / run.record_name, record_text(record))


def record_text(record: Mapping[str, object]) -> str:
    """A launcher's record as it is written."""
    return json.dumps(_as_text(record), indent=1) + "\n"


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path` by a rename, readable by the owner only.

    Raises:
        RecordingError: the directory cannot be written, or the disk is full.
    """
    try:
        write_private(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise _cannot_write(path, error) from error


def collect_boxes(run: Run) -> Run:
    """Moves recordings that were written elsewhere into the run directory; returns the run with its new place.

    The recording of a running process is copied and left where it is.

    Raises:
        RecordingError: the run directory cannot be written; the recordings stay where they are.
    """
    if run.recording == run.directory:
        return replace(run, notes=())
    kept = False
    try:
        with (
            private_directory(run.recording) as recording,
            private_directory(BOXES, recording) as source,
            private_directory(run.directory) as directory,
            made_directory(BOXES, directory) as target,
        ):
            for name in os.listdir(recording):
                if name.startswith(COUNTERS):
                    copy_private(name, recording, directory, _counters_name(run, name))
            for name in sorted(item for item in os.listdir(source) if item.endswith(BOX_SUFFIX)):
                copy_private(name, source, target)
                pid = name.removesuffix(BOX_SUFFIX).split(".")
                if any(part.isdigit() and Path("/proc", part).exists() for part in pid[-2:]):
                    kept = True
                else:
                    os.unlink(name, dir_fd=source)
    except OSError as error:
        problem = _cannot_write(run.boxes, error)
        raise RecordingError(str(problem.args[0]), f"the black boxes stay in {run.recording}") from error
    if kept:
        return replace(run, notes=(f"processes of the job still run; their black boxes stay in {run.recording}",))
    shutil.rmtree(run.recording, ignore_errors=True)
    return replace(run, recording=run.directory, notes=())


def _counters_name(run: Run, name: str) -> str:
    """Tasks of one host that record into local directories have counters of their own."""
    return name if run.task is None else f"{name}:{run.task.rank}"


def _as_text(value: object) -> object:
    """`value` as valid JSON: the surrogates that Python uses for bytes that are not UTF-8 are no characters."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {_as_text(name): _as_text(item) for name, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, (list, tuple)) else value


def given_environment() -> dict[str, str]:
    """The original environment of this process: in the C locale CPython adds LC_CTYPE to its own (PEP 538)."""
    result = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return result
    if "LC_CTYPE" in result and not any(item.startswith(b"LC_CTYPE=") for item in given):
        del result["LC_CTYPE"]
    return result


def _current_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise RecordingError("the current directory does not exist any more", "change to another one") from error


def _new_directory(command: Sequence[str]) -> Path:
    runs = Path(_current_directory(), RUNS)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{command_word(command)}-{os.getpid()}"
    try:
        runs.mkdir(exist_ok=True)
        # Hosts that share the directory may use the same pid in the same second.
        for attempt in range(100):
            directory = runs / (f"{name}-{attempt}" if attempt else name)
            try:
                directory.mkdir(mode=0o700)
                return directory
            except FileExistsError:
                continue
    except OSError as error:
        raise _cannot_write(runs / name, error) from error
    raise RecordingError(f"{runs} holds a hundred runs named {name}", "choose a directory with -o DIR")


def output_directory(path: Path) -> Path:
    """The directory of `-o path`: a link to a directory is the user's choice, so it is followed once, here."""
    return Path(os.path.realpath(path) if path.is_symlink() else os.path.abspath(path))


def _prepare_output(directory: Path, force: bool) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with private_directory(directory) as opened, old_files(opened) as old:
            if old and not force:
                raise holds_recording(directory)
            for below, name in old:
                os.unlink(name, dir_fd=below)
    except FileExistsError as error:
        raise UsageError(f"{directory} is not a directory", "choose another one with -o DIR") from error
    except OSError as error:
        raise _cannot_write(directory, error) from error


def holds_recording(directory: Path) -> UsageError:
    """What a user is told who records into the same directory again."""
    return UsageError(f"{directory} already holds a recording", "choose another directory, or --force to delete it")


def is_name_of_run(name: str) -> bool:
    """Whether a file directly in a run directory is one of ours."""
    return name in OWN_FILES or name.startswith((COUNTERS, ENDED)) or TASK_FILE.fullmatch(name) is not None


@contextlib.contextmanager
def old_files(opened: int) -> Iterator[list[tuple[int, str]]]:
    """The files of an older recording in an open directory, as names below descriptors."""
    names = os.listdir(opened)
    old = [(opened, name) for name in names if is_name_of_run(name)]
    with contextlib.ExitStack() as stack:
        for folder, suffix in ((BOXES, BOX_SUFFIX), (GPU_CORES, "")):
            if folder in names:
                below = stack.enter_context(private_directory(folder, opened))
                old += [(below, name) for name in os.listdir(below) if name.endswith(suffix)]
        yield old


def _local_directory(directory: Path, kind: str) -> Path:
    for base in dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]):
        if os.path.isdir(base) and os.access(base, os.W_OK | os.X_OK) and not is_remote(file_system(Path(base))):
            return Path(tempfile.mkdtemp(prefix="pytracer-", dir=base))
    raise RecordingError(
        f"{directory} is on {kind}, where a black box cannot be mapped safely, and no local directory is writable",
        "choose a local directory with -o DIR",
    )


def _check_room(directory: Path) -> None:
    room = os.statvfs(directory)
    free = room.f_bavail * room.f_frsize
    if free < ROOM_BYTES or (room.f_files and not room.f_favail):
        what = f"{free // 2**20} MiB" if free < ROOM_BYTES else "no inode"
        raise RecordingError(
            f"the disk of {directory} is full: {what} left, {ROOM_BYTES // 2**20} MiB are needed",
            "free some, or choose another disk with -o DIR",
        )


def _cannot_write(path: Path, error: OSError) -> RecordingError:
    hint = "choose a writable directory with -o DIR"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space, or choose another disk with -o DIR"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        hint = "raise `ulimit -n`"
    return RecordingError(f"cannot write {path}: {error.strerror or error}", hint)
