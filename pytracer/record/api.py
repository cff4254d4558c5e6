"""enable, disable, is_enabled, mark, step: recording of this process.

No machine problem raises into the training program: with an unwritable directory or a missing library, one line is
printed on stderr and the program continues untraced.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Literal

from pytracer import _paths as paths
from pytracer._errors import PytracerError, RecordingError, UsageError
from pytracer._printable import one_line
from pytracer._private_files import private_directory
from pytracer.blackbox.numbers import LEVELS
from pytracer.record import config
from pytracer.record.bootstrap import python_half, torch_half
from pytracer.record.bootstrap.dynamo import is_compiling, unseen
from pytracer.record.core import ANNOUNCE, STEP_CALLED, Core, core

Level = Literal["light", "default", "ops"]

_called = False  # the program called enable()


@unseen
def enable(
    directory: str | os.PathLike[str] | None = None, *, level: Level | None = None, guard: str | None = None
) -> Path | None:
    """Starts recording this process: crashes, storages, autograd nodes, collectives, DDP buckets.

    Call it once, early, from any thread. The torch hooks are installed immediately, or when torch is imported. Under
    `pytracer run` the process already records, and this call joins that run. Forked children record, too.

    Args:
        directory: the run directory; created if missing. Default: PYTRACER_DIR, else `runs/<time>-<script>-<pid>`,
            shared by the ranks that one launcher started. Must be on a local disk: on a network file system, or if it
            cannot be written, a temporary directory is used instead and printed on stderr.
        level: "light" (no history of autograd nodes), "default", or "ops" (every operator). Default: PYTRACER_LEVEL,
            else "default".
        guard: guard mode, with the options of `pytracer run --guard`: "all", "sample:1000", ... A page that faults
            then follows each storage, and freed storages stay inaccessible (docs/guide/guard.md). Default:
            PYTRACER_GUARD, else off. Forked children and processes that inherit the environment do the same.

    Returns:
        The run directory; None if nothing can be recorded, with the reason on stderr.

    Raises:
        UsageError: `level` or `guard` is invalid.
    """
    global _called
    if guard is not None:
        from pytracer.record.guard_mode import VARIABLE, parse_guard  # imported here: few runs use guard mode

        parse_guard(guard)
    if level is not None and level not in LEVELS:
        raise UsageError(f"there is no level {level!r}", f"use one of {', '.join(LEVELS)}")
    try:
        box = core()
    except PytracerError as error:
        _say(f"not recording: {error}")
        return None
    if box.recording and (_called or not box.preloaded):
        _say(f"already recording into {box.directory}; to change the settings call pytracer.disable() first")
        return box.directory
    _called = True
    chosen = level or config.level_from_environment()
    if guard is not None:
        os.environ[VARIABLE] = guard  # for children, and for the hooks, which are installed with torch
    if box.recording:
        box.lib.pytracer_create_black_box()
        torch_half.arm_guard(box)  # preloaded: the launcher chose directory and level
        return box.directory
    if box.has_box:
        box.lib.pytracer_resume()
        if directory is not None and Path(os.path.abspath(directory)) != box.directory:
            _say(f"a process keeps its recording: continuing in {box.directory}")
    elif not _start(box, directory):
        return None
    else:
        box.held.pytracer_watch_exits()
    python_half.start(chosen)
    return box.directory


@unseen
def disable() -> None:
    """Stops recording: hooks, patches and signal handlers are removed, unless others were installed on top of them.

    The recording stays on disk, and `enable()` continues it. Does nothing if recording is off.
    """
    global _called
    _called = False
    if not is_enabled():
        return
    python_half.stop()
    core().lib.pytracer_stop()


@unseen
def is_enabled() -> bool:
    """Whether this process records, however recording was started."""
    if is_compiling():
        return python_half.started  # compiled code cannot call the core
    try:
        return core().recording
    except PytracerError:
        return False


@unseen
def mark(text: str) -> None:
    """Adds a note to the recording, e.g. "epoch 3 begins". At most 112 bytes of UTF-8 are kept.

    Costs about 1 us. Does nothing if recording is off, or inside a function compiled by torch.compile: call it outside.
    """
    if not is_compiling() and is_enabled():
        payload = text.encode("utf-8", "replace")
        core().lib.pytracer_mark(payload, len(payload))


@unseen
def step(n: int) -> None:
    """Marks the beginning of training step `n`; later records belong to it.

    Without this call the steps of the first optimizer are counted. Costs about 1 us. Does nothing if recording is off,
    or inside a function compiled by torch.compile: call it outside.
    """
    if not is_compiling() and is_enabled():
        core().held.pytracer_step(int(n), STEP_CALLED)


def _start(box: Core, directory: str | os.PathLike[str] | None) -> bool:
    wanted = Path(os.path.abspath(directory)) if directory is not None else config.default_directory()
    kind = paths.file_system(wanted)
    problem: str | None = f"a black box cannot be mapped safely on {kind}" if paths.is_remote(kind) else None
    if problem is None:
        problem = _start_in(box, wanted)
    if problem is not None:
        spare = Path(tempfile.gettempdir(), f"pytracer-{os.getuid()}", wanted.name)
        spare_problem = _start_in(box, spare, spare.parent)
        if spare_problem is not None:
            _say(f"not recording: {wanted}: {problem}; {spare}: {spare_problem}; set PYTRACER_DIR to a local directory")
            return False
        _say(f"cannot record into {wanted} ({problem}): recording into {spare}; choose with enable(directory=...)")
        wanted = spare
    os.environ["PYTRACER_DIR"] = str(wanted)  # children that call enable() join this run
    if wanted.parent.name == paths.RUNS:
        paths.point_latest(wanted)
    return True


def _start_in(box: Core, directory: Path, *above: Path) -> str | None:
    """Records into a directory that no other user may write, nor those `above` it; returns the problem, or None."""
    try:
        for path in (*above, directory):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with private_directory(os.path.realpath(path)):
                pass
        box.start(directory, ANNOUNCE)
    except OSError as error:
        return error.strerror or str(error)
    except RecordingError as error:
        return str(error.args[0])
    return None


def _say(text: str) -> None:
    print(f"pytracer: {one_line(text)}", file=sys.stderr)
