"""run.json to `LauncherRecord`. Parts that cannot be understood are damage; the rest is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pytracer.decode.device_parts import GpuCoreWish
from pytracer.decode.snapshot import Damage, LauncherRecord
from pytracer.decode.witness import Usage, Witness

RUN_FILE = "run.json"
_Part = TypeVar("_Part")


class _RunFile(msgspec.Struct):
    pid: int
    host: str
    boot_id: str
    command: list[str]
    started_wall_ns: int
    started_mono_ns: int
    cwd: str = ""
    ended_mono_ns: int | None = None
    child_pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    usage: Any = None
    witness: Any = None
    gpu_core: Any = None


def read_launcher(directory: Path, damage: list[Damage]) -> LauncherRecord | None:
    """What the launcher wrote into a run directory; None when there was none or its file is broken."""
    try:
        content = (directory / RUN_FILE).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        damage.append(Damage(RUN_FILE, 0, f"cannot be read: {error.strerror}"))
        return None
    try:
        run = msgspec.json.decode(content, type=_RunFile)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        damage.append(Damage(RUN_FILE, 0, f"cannot be understood: {error}"))
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
        usage=_part("usage", run.usage, Usage, damage),
        witness=_part("witness", run.witness, Witness, damage),
        gpu_core=_part("gpu_core", run.gpu_core, GpuCoreWish, damage),
    )


def _part(name: str, value: Any, kind: type[_Part], damage: list[Damage]) -> _Part | None:
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        damage.append(Damage(RUN_FILE, 0, f"its {name} cannot be understood: {error}"))
        return None
