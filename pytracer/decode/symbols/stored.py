"""symbols.json: names and lines of a job's native frames, so that it can be read on a machine without its images."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from pytracer._private_files import write_private
from pytracer.decode.files import MIB, read_regular
from pytracer.decode.formats.plain_json import load_json
from pytracer.decode.types.snapshot import Crash, Damage, Job, NativeFrame, Snapshot, SourceLine

SYMBOLS_FILE = "symbols.json"
_LARGEST_NAMES = 32 * MIB
_LINES = "lines"  # the key that is no place
Lines = tuple[SourceLine, ...]


class Known(NamedTuple):
    """What symbols.json holds, by `symbol_key`."""

    names: Mapping[str, str] = MappingProxyType({})
    lines: Mapping[str, Lines] = MappingProxyType({})


def symbol_key(build_id: str, offset: int) -> str:
    """The key of a location in an image in symbols.json."""
    return f"{build_id}:{offset:#x}"


def written(snapshot: Snapshot) -> Crash | None:
    """What a process wrote when it died, when it ended itself, or while it ran: when it was asked to end."""
    return snapshot.crash or snapshot.ending or snapshot.live


def native_frames(crash: Crash | None) -> Iterator[NativeFrame]:
    """The frames of all stacks, the crashed thread's first, and other pointers to code."""
    if crash is not None:
        yield from crash.native_stack
        yield from crash.code_pointers
        for thread in crash.threads:
            yield from thread.native_stack


def read_symbols(path: Path, damage: list[Damage]) -> Known:
    """What `write_symbols` stored; empty when there is nothing. Trouble is added to `damage`."""
    try:
        value = load_json(read_regular(path, _LARGEST_NAMES))
    except FileNotFoundError:
        return Known()
    except OSError as error:
        damage.append(Damage(path.name, 0, f"cannot be read: {error.strerror}"))
        return Known()
    except (ValueError, RecursionError) as error:
        damage.append(Damage(path.name, 0, f"cannot be read: {error}"))
        return Known()
    if not isinstance(value, dict):
        damage.append(Damage(path.name, 0, "is not a table of names"))
        return Known()
    lines = value.get(_LINES)
    stored = {k: _stored_lines(v) for k, v in lines.items()} if isinstance(lines, dict) else {}
    names = {k: v for k, v in value.items() if isinstance(v, str)}
    return Known(names, {k: v for k, v in stored.items() if v is not None})


def _stored_lines(value: object) -> Lines | None:
    """None for what is no list of [function, file, line]."""
    try:
        rows = msgspec.convert(value, list[tuple[str, str | None, int | None]])
    except msgspec.ValidationError:
        return None
    return tuple(SourceLine(*row) for row in rows)


def write_symbols(job: Job, path: str | os.PathLike[str]) -> int:
    """Stores the names of all native frames of a job beside it; returns their number. The file is replaced as a whole.

    Raises:
        OSError: it cannot be written.
        RecordingError: the directory is not ours alone.
    """
    count, content = symbols_of(job)
    write_private(Path(path), content)
    return count


def symbols_of(job: Job) -> tuple[int, bytes]:
    """The number of names of a job's native frames, and the content of symbols.json.

    Frames without a build id are left out: it could not be verified that the name is still right.
    """
    names: dict[str, str] = {}
    lines: dict[str, list[list[object]]] = {}
    for process in job.processes:
        for frame in native_frames(written(process.snapshot)):
            if not frame.build_id or frame.offset is None:
                continue
            key = symbol_key(frame.build_id, frame.offset)
            if frame.function and frame.function_found == "exact":
                names[key] = frame.function
            if frame.lines:
                lines[key] = [[item.function, item.file, item.line] for item in frame.lines]
    stored = {**names, _LINES: lines} if lines else names
    return len(names), (json.dumps(stored, indent=1, sort_keys=True) + "\n").encode()
