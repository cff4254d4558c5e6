"""Dumps of torch's Flight Recorder: the last collectives of one rank.

Written by torch itself (TORCH_FR_DUMP_TEMP_FILE, when a watchdog gives up), by `_dump_fr_trace` and
`_dump_fr_trace_json`, as a pickle or as JSON; format 2.x. A file does not contain its rank: the file name has it.

gloo (torch 2.13) differs: the state stays "scheduled"; `retired` means that the operation has ended, but not how;
`pg_config` has one group with an empty name; point-to-point operations are missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from pytracer._errors import InputError
from pytracer.decode.files import MIB, read_regular
from pytracer.decode.formats.plain_json import load_json
from pytracer.decode.formats.plain_pickle import load_plain
from pytracer.decode.types.snapshot import CollectiveStateName, Damage, PythonFrame

MAX_BYTES = 64 * MIB  # 20,000 entries with whole stacks have 40
MAX_ENTRIES = 200_000
OWN_KEY: Final = "pytracer"  # of dumps that `pytracer dump --flight-recorder` wrote
_MOST = 256  # tensors of an operation, dimensions of a tensor, frames of a stack
_WORD = 512
_MOST_NAMES, _MOST_FILES = 1 << 18, 1 << 16  # of a directory
# Torch's default is .../nccl_trace_rank_N, 2.10 and later .../comm_lib_trace_rank_N.
NAME = re.compile(r"[\w.-]*rank_?(\d{1,7})(\.(json|pkl|pickle))?")
_ANY_NUMBER = re.compile(r"(\d{1,7})(\.(json|pkl|pickle|bin|txt))?$")
# Names in profiles -> the functions that people call, as in `collectives.py`.
OPS = {
    "_all_gather_base": "all_gather_into_tensor", "all_gather_single": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor", "reduce_scatter_single": "reduce_scatter_tensor",
    "allreduce_coalesced": "all_reduce_coalesced", "ALLGATHER_coalesced": "all_gather_coalesced",
    "REDUCE_SCATTER_coalesced": "reduce_scatter_coalesced", "_broadcast_oop": "broadcast", "_reduce_oop": "reduce",
    "all_to_all_v_single": "all_to_all_single",
}  # fmt: skip
DTYPES = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Half": "float16",
    "Float": "float32", "Double": "float64", "ComplexHalf": "complex32", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "Bool": "bool", "BFloat16": "bfloat16",
}  # fmt: skip
_PEERS = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")


@dataclass(frozen=True)
class FlightEntry:
    """One operation. Times are wall-clock ns. `state` "ended": it ended, and the dump does not contain how.

    `peer` is the rank in the group of the other side of a send or recv.
    """

    record_id: int | None
    group: str | None
    description: str | None
    sequence_nr: int
    op: str
    backend: str | None
    point_to_point: bool
    peer: int | None
    state: CollectiveStateName
    created_ns: int | None
    started_ns: int | None
    completed_ns: int | None
    timeout_ms: int | None
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    dtype: str | None
    python: PythonFrame | None
    caller: PythonFrame | None


@dataclass(frozen=True)
class FlightDump:
    """One file. `groups`: name -> global ranks, None if the dump lacks them; `notes` are sentences."""

    path: str
    rank: int | None
    version: str | None
    own: bool
    groups: dict[str, tuple[int, ...] | None]
    entries: tuple[FlightEntry, ...]
    notes: tuple[str, ...]


def find_dumps(paths: Iterable[Path]) -> list[Path]:
    """The given files, and those in the given directories whose names are those of dumps."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        with contextlib.suppress(OSError):  # load_job reports this directory better
            names = sorted(entry.name for entry in islice(os.scandir(path), _MOST_NAMES) if NAME.fullmatch(entry.name))
            found += [path / name for name in names[:_MOST_FILES] if (path / name).is_file()]
    return list(dict.fromkeys(found))


def read_dumps(paths: Iterable[Path], damage: list[Damage]) -> list[FlightDump]:
    """All dumps that can be read; the others are added to `damage`."""
    dumps = []
    for path in paths:
        try:
            dumps.append(read_dump(path))
        except InputError as error:
            damage.append(Damage(path.name, 0, Exception.__str__(error)))
    return dumps


def read_dump(path: str | os.PathLike[str]) -> FlightDump:
    """Reads one dump. Nothing in the file is ever run.

    Raises:
        InputError: it is missing, too large, or no dump.
    """
    name = os.path.basename(path)
    content = _content(Path(path))
    if not isinstance(content, dict) or not isinstance(content.get("entries", []), (list, tuple)):
        raise InputError(f"{name} is no dump of the Flight Recorder", "such a dump is an object with `entries`")
    version = _word(content.get("version"))
    if version is None or not version.startswith("2."):
        raise InputError(f"{name} is a dump of version {version or 'unknown'}", "versions 2.x can be read")
    raw: Sequence[object] = content.get("entries", [])
    own = content.get(OWN_KEY)
    entries = [entry for item in raw[:MAX_ENTRIES] if (entry := _entry(item)) is not None]
    groups = dict(_groups(content.get("pg_config")))
    return FlightDump(
        path=os.fspath(path),
        rank=_rank(name, own),
        version=version,
        own=isinstance(own, dict),
        groups=groups,
        entries=tuple(entries),
        notes=tuple(_notes(raw, entries, groups)),
    )


def _content(path: Path) -> object:
    try:
        data = read_regular(path, MAX_BYTES)
    except IsADirectoryError:
        raise InputError(f"{path} is a directory", "name a dump, or a directory that holds some") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            message = f"{path.name} is larger than {MAX_BYTES // MIB} MiB"
            raise InputError(message, "no Flight Recorder writes that much") from None
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path") from None
    if not data:
        raise InputError(f"{path.name} is empty", "its rank may have died while it was written")
    try:
        return load_json(data) if data[:64].lstrip()[:1] == b"{" else load_plain(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path.name} is no dump: {error}", "see docs/guide/flight-recorder.md") from None


def _rank(name: str, own: object) -> int | None:
    if isinstance(own, dict) and _count(own.get("rank")) is not None:
        return _count(own.get("rank"))
    match = NAME.fullmatch(name) or _ANY_NUMBER.search(name)
    return int(match[1]) if match else None


def _groups(config: object) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """`pg_config`: the ranks are text, as in "[0, 1]"."""
    if not isinstance(config, dict):
        return
    for key, value in list(config.items())[: 1 << 16]:
        if not isinstance(value, Mapping) or not isinstance(key, (str, int)) or key == "":
            continue
        text = value.get("ranks")
        ranks = re.findall(r"\d{1,9}", text) if isinstance(text, str) else []
        yield str(key), tuple(int(rank) for rank in ranks) or None


def _notes(raw: Sequence[object], entries: list[FlightEntry], groups: Mapping[str, object]) -> Iterator[str]:
    lost = min(len(raw), MAX_ENTRIES) - len(entries)
    if lost:
        yield f"{lost} entries could not be understood"
    if len(raw) > MAX_ENTRIES:
        yield f"{len(raw) - MAX_ENTRIES} entries were left out"
    if any(entry.state == "ended" for entry in entries):
        yield "the backend wrote no states: of operations that ended it is not known whether they failed"
    if entries and not groups:
        yield "the dump does not say which ranks its groups have"


def _entry(item: object) -> FlightEntry | None:
    if not isinstance(item, dict):
        return None
    name = _word(item.get("profiling_name"))
    point_to_point = bool(item.get("is_p2p"))
    sequence_nr = _count(item.get("p2p_seq_id" if point_to_point else "collective_seq_id"))
    if name is None or sequence_nr is None:
        return None
    backend, colon, word = name.partition(":")
    word = word if colon else name
    group = item.get("process_group")
    pair = [_word(part) for part in group[:2]] if isinstance(group, (list, tuple)) and len(group) >= 2 else [None, None]
    frames = list(_frames(item.get("frames")))
    dtypes = item.get("input_dtypes") or item.get("output_dtypes")
    dtype = _word(dtypes[0]) if isinstance(dtypes, (list, tuple)) and dtypes else None
    return FlightEntry(
        record_id=_count(item.get("record_id")),
        group=pair[0],
        description=pair[1],
        sequence_nr=sequence_nr,
        op=OPS.get(word.split(" ")[0], word.split(" ")[0]),
        backend=backend if colon else None,
        point_to_point=point_to_point,
        peer=_peer(word),
        state=_state(item),
        created_ns=_count(item.get("time_created_ns")) or None,
        started_ns=_count(item.get("time_discovered_started_ns")) or None,
        completed_ns=_count(item.get("time_discovered_completed_ns")) or None,
        timeout_ms=_count(item.get("timeout_ms")),
        input_sizes=_sizes(item.get("input_sizes")),
        output_sizes=_sizes(item.get("output_sizes")),
        dtype=DTYPES.get(dtype, dtype.lower()) if dtype else None,
        python=frames[0] if frames else None,
        caller=next((frame for frame in frames if "/torch/" not in frame.file), None),
    )


def _state(item: Mapping[str, object]) -> CollectiveStateName:
    state = item.get("state")
    if state == "completed" or _count(item.get("time_discovered_completed_ns")):
        return "completed"
    if item.get("retired") is True:
        return "ended"
    return "started" if state == "started" else "scheduled"


def _peer(word: str) -> int | None:
    """`send 1->2` has peer 2, `recv 3<-0` has peer 0: the second number."""
    match = _PEERS.match(word)
    return int(match[3]) if match else None


def _frames(frames: object) -> Iterator[PythonFrame]:
    for frame in frames[:_MOST] if isinstance(frames, (list, tuple)) else ():
        if isinstance(frame, dict) and _word(frame.get("filename")) is not None:
            yield PythonFrame(
                _word(frame.get("name")) or "?", _word(frame.get("filename")) or "", _count(frame.get("line"))
            )


def _sizes(sizes: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(sizes, (list, tuple)):
        return ()
    inner = (tensor for tensor in sizes[:_MOST] if isinstance(tensor, (list, tuple)))
    return tuple(tuple(n for n in tensor[:_MOST] if type(n) is int) for tensor in inner)


def _word(value: object) -> str | None:
    return value[:_WORD] if isinstance(value, str) else None


def _count(value: object) -> int | None:
    """A number that is not negative; JSON dumps write some as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 63 else None
