"""run.json to `LauncherRecord`. Parts that cannot be understood are damage; the rest is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from pytracer.decode.files import MIB, read_regular
from pytracer.decode.formats.plain_json import load_json
from pytracer.decode.types.devices import GpuCoreWish
from pytracer.decode.types.host_counters import Usage, Witness
from pytracer.decode.types.snapshot import Damage, LauncherRecord

RUN_FILE = "run.json"
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


def read_launcher(directory: Path, damage: list[Damage]) -> LauncherRecord | None:
    """What the launcher wrote into a run directory; None when there was none or its file is broken."""
    try:
        content = read_regular(directory / RUN_FILE, _LARGEST_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        damage.append(Damage(RUN_FILE, 0, f"cannot be read: {error.strerror}"))
        return None
    try:
        run = msgspec.convert(load_json(content), _RunFile)
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
        redacted=run.redacted,
    )


def _part(name: str, value: object, kind: type[_Part], damage: list[Damage]) -> _Part | None:
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        damage.append(Damage(RUN_FILE, 0, f"its {name} cannot be understood: {error}"))
        return None
