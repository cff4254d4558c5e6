"""A rank's recorded collectives in the format of torch's Flight Recorder, version 2.10, for its tools.

What the format lacks (roots, reduce operations, tags) is left out; what the recording lacks (the shapes of all tensors
of a list) is written as one flat tensor of as many elements.
"""

from __future__ import annotations

import math
from typing import TypedDict

from pytracer.decode.formats.flight_recorder import DTYPES, OWN_KEY
from pytracer.decode.types.snapshot import Collective, Process, Snapshot

VERSION = "2.10"
# Operations that torch's analyzer knows (torch 2.13, flight_recorder/components/types.py); it stops at any other.
_BACKENDS = ("nccl", "ncclx", "xccl", "gloo", "rccl", "rcclx", "mccl", "hccl")
_NAMES = {
    "all_gather_into_tensor": "_all_gather_base", "reduce_scatter_tensor": "_reduce_scatter_base",
    "all_reduce_coalesced": "allreduce_coalesced", "all_gather_coalesced": "ALLGATHER_coalesced",
    "monitored_barrier": "barrier",
}  # fmt: skip
# The analyzer takes a point-to-point operation for a part of the preceding collective if their numbers are equal
# (find_coalesced_group_with_non_p2p compares p2p_seq_id to collective_seq_id). These numbers are never equal.
_FIRST_MESSAGE = 1 << 20
_DTYPES = {ours: theirs for theirs, ours in DTYPES.items()}
_WITHOUT_TENSORS = ("barrier", "monitored_barrier")
_GATHERS = ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")


class FlightForm(TypedDict):
    """A dump. `OWN_KEY` is the key of our own additions."""

    version: str
    comm_lib_version: str
    entries: list[dict[str, object]]
    pg_config: dict[str, dict[str, str]]
    pg_status: dict[str, dict[str, int]]
    pytracer: dict[str, object]


def flight_form(process: Process) -> FlightForm:
    """The dump of one rank: plain containers, numbers and text."""
    box = process.snapshot
    status: dict[str, dict[str, int]] = {}
    entries: list[dict[str, object]] = []
    messages: dict[str, int] = {}  # point-to-point operations so far, by group
    for position, item in enumerate(box.collectives):
        group = item.group or "0"
        counts = status.setdefault(group, dict.fromkeys(_STATUS, -1))
        if item.point_to_point:
            messages[group] = messages.get(group, _FIRST_MESSAGE - 1) + 1
        else:
            _count(counts, item)
        entries.append(_entry(box, item, position, max(0, counts["last_enqueued_collective"]), messages.get(group, 0)))
    return {
        "version": VERSION,
        "comm_lib_version": "",
        "entries": entries,
        "pg_config": _groups(process),
        "pg_status": status,
        OWN_KEY: {"rank": process.rank, "pid": box.pid, "host": box.host},
    }


_STATUS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")


def _count(counts: dict[str, int], item: Collective) -> None:
    reached = {"scheduled": 1, "started": 2, "failed": 2, "completed": 3}.get(item.state, 1)
    for name in _STATUS[:reached]:
        counts[name] = max(counts[name], item.sequence_nr)


def _groups(process: Process) -> dict[str, dict[str, str]]:
    """Every group that an entry names has to be there, or torch's analyzer stops."""
    box, world = process.snapshot, process.world_size
    found = {
        group.name: {"name": group.name, "desc": group.description or "undefined", "ranks": str(list(group.ranks))}
        for group in box.groups
        if group.name is not None and group.ranks is not None
    }
    for item in box.collectives:
        name = item.group or "0"
        if name not in found:  # of ten thousand ranks, their text is long
            found[name] = {"name": name, "desc": "undefined", "ranks": str(list(range(world or 1)))}
    return found


def _entry(box: Snapshot, item: Collective, position: int, sequence_nr: int, messages: int) -> dict[str, object]:
    described = {group.name: group.description for group in box.groups}
    inputs, outputs = _sizes(item)
    dtypes = [_DTYPES.get(item.dtype, item.dtype)] if item.dtype else []
    return {
        "record_id": item.number - 1 if item.number else position,
        "pg_id": next((n for n, group in enumerate(box.groups) if group.name == item.group), 0),
        "process_group": (item.group or "0", described.get(item.group) or "undefined"),
        "collective_seq_id": sequence_nr if item.point_to_point else item.sequence_nr,
        "p2p_seq_id": messages,
        "op_id": item.number or position + 1,
        "profiling_name": _name(box, item),
        "time_created_ns": _wall(box, item.scheduled_ns) or 0,
        "time_discovered_started_ns": _wall(box, item.started_ns),
        "time_discovered_completed_ns": _wall(box, item.completed_ns) if item.state == "completed" else None,
        "input_sizes": inputs,
        "input_dtypes": dtypes if inputs else [],
        "output_sizes": outputs,
        "output_dtypes": dtypes if outputs else [],
        "state": "started" if item.state == "failed" else item.state,
        "retired": item.state in ("completed", "failed", "ended"),
        "timeout_ms": item.timeout_ms if item.timeout_ms is not None else 0,
        "is_p2p": item.point_to_point,
        "thread_id": str(item.tid),
        "thread_name": "",
        "frames": [
            {"name": frame.function, "filename": frame.file, "line": frame.line or 0}
            for frame in dict.fromkeys((item.python, item.caller))
            if frame is not None
        ],
    }


def _name(box: Snapshot, item: Collective) -> str:
    """`gloo:all_reduce`, `gloo:send 0->1`, `gloo:recv 1<-0`."""
    words = (item.backend or "").replace(",", ":").split(":")
    backend = next((word for word in reversed(words) if word in _BACKENDS), "gloo")
    name = _NAMES.get(item.op, item.op)
    own = next((group.own_rank for group in box.groups if group.name == item.group), None)
    if item.op in ("send", "recv"):
        name = f"{name} {own or 0}{'->' if item.op == 'send' else '<-'}{item.peer or 0}"
    return f"{backend}:{name}"


def _sizes(item: Collective) -> tuple[list[list[int]], list[list[int]]]:
    if item.op in _WITHOUT_TENSORS:
        return [], []
    whole = item.numel is None or math.prod(item.sizes) == item.numel
    inputs = [list(item.sizes) if whole else [item.numel or 0]]
    if item.op.startswith(_GATHERS) and item.output_numel is not None:
        return inputs, [[item.output_numel]]
    return inputs, inputs


def _wall(box: Snapshot, mono_ns: int | None) -> int | None:
    return None if mono_ns is None else mono_ns - box.created_mono_ns + box.created_wall_ns


def json_form(form: FlightForm) -> dict[str, object]:
    """As `_dump_fr_trace_json` writes it: times that are not known are 0, numbers of `pg_status` are text."""
    entries = [
        {key: 0 if value is None else value for key, value in entry.items() if key != "frames"}
        for entry in form["entries"]
    ]
    status = {name: {key: str(n) for key, n in counts.items()} for name, counts in form["pg_status"].items()}
    return {**form, "entries": entries, "pg_status": status, "nccl_comm_state": {}}
