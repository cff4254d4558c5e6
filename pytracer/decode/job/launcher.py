"""run.json to `LauncherRecord`, and run.RANK.json of each further task of a step that shares the directory.

Parts that cannot be understood are damage; the rest is used.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from pytracer.decode.files import MIB, read_regular
from pytracer.decode.formats.plain_json import load_json
from pytracer.decode.types.devices import GpuCoreWish
from pytracer.decode.types.host_counters import Usage, Witness
from pytracer.decode.types.snapshot import Damage, LaunchedTask, LauncherRecord, SlurmState

RUN_FILE = "run.json"
_TASK_FILE = re.compile(r"run\.(\d{1,9})\.json")
_MOST_TASKS = 1 << 16
_LARGEST_FILE = 16 * MIB  # with 512 processes it has 200 KB
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Part = TypeVar("_Part")


class _RunFile(msgspec.Struct):
    pid: _Number
    host: str
    boot_id: str
    command: list[str]
    started_wall_ns: _Number
    started_mono_ns: _Number
    cwd: str = ""
    ended_mono_ns: _Number | None = None
    child_pid: _Number | None = None
    exit_code: _Number | None = None
    signal: _Number | None = None
    usage: object = None
    witness: object = None
    gpu_core: object = None
    redacted: int = 0
    task: object = None
    killed_for: str | None = None
    killed: list[_Number] = []
    slurm: object = None


def read_launchers(directory: Path, damage: list[Damage]) -> list[LauncherRecord]:
    """What the launchers wrote into a run directory: the one that created it first, then those of other tasks by rank.

    Records of another step than the first one's are left out, which is damage.
    """
    first = _read(directory, RUN_FILE, damage)
    try:
        with os.scandir(directory) as entries:
            found = [(int(match[1]), entry.name) for entry in entries if (match := _TASK_FILE.fullmatch(entry.name))]
    except OSError:
        found = []
    records = [first, *(_read(directory, name, damage) for _, name in sorted(found)[:_MOST_TASKS])]
    known = [record for record in records if record is not None]
    steps = {record.task.step for record in known if record.task is not None}
    if len(steps) > 1 and known[0].task is not None:
        damage.append(Damage(RUN_FILE, 0, f"{len(steps)} steps recorded into this directory; the first one is read"))
        known = [record for record in known if record.task is not None and record.task.step == known[0].task.step]
    return known


def _read(directory: Path, name: str, damage: list[Damage]) -> LauncherRecord | None:
    """One record; None when there is none or its file is broken."""
    try:
        content = read_regular(directory / name, _LARGEST_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        damage.append(Damage(name, 0, f"cannot be read: {error.strerror}"))
        return None
    try:
        run = msgspec.convert(load_json(content), _RunFile)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        damage.append(Damage(name, 0, f"cannot be understood: {error}"))
        return None
    return LauncherRecord(
        pid=run.pid,
        host=run.host,
        boot_id=run.boot_id,
        command=tuple(run.command),
        cwd=run.cwd,
        started_wall_ns=run.started_wall_ns,
        started_mono_ns=run.started_mono_ns,
        ended_mono_ns=run.ended_mono_ns,
        child_pid=run.child_pid,
        exit_code=run.exit_code,
        signal=run.signal,
        usage=_part(name, "usage", run.usage, Usage, damage),
        witness=_part(name, "witness", run.witness, Witness, damage),
        gpu_core=_part(name, "gpu_core", run.gpu_core, GpuCoreWish, damage),
        redacted=run.redacted,
        slurm=_part(name, "slurm", run.slurm, SlurmState, damage),
        task=_part(name, "task", run.task, LaunchedTask, damage),
        killed_for=run.killed_for,
        killed=tuple(run.killed),
    )


def _part(file: str, name: str, value: object, kind: type[_Part], damage: list[Damage]) -> _Part | None:
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        damage.append(Damage(file, 0, f"its {name} cannot be understood: {error}"))
        return None
