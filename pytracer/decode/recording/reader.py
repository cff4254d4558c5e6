"""Recording to `Snapshot`, tolerant of damage.

The parts: bytes in `file.py`, journal in `journal.py`, threads and records in `rings.py`, storages in `storages.py`,
the crash section in `crash.py`. `symbolize.py` adds names of native functions, `merge.py` combines all processes.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytracer.blackbox.schema import CrashState, Entry, Region, State
from pytracer.decode.recording.collectives import Collectives
from pytracer.decode.recording.crash import CrashReader
from pytracer.decode.recording.dataloader_workers import worker_of
from pytracer.decode.recording.devices import Devices
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.guard import read_guard
from pytracer.decode.recording.journal import Journal
from pytracer.decode.recording.names import Names
from pytracer.decode.recording.rings import Rings
from pytracer.decode.recording.scopes import scoped_tensors
from pytracer.decode.recording.signal_sends import signal_sends
from pytracer.decode.recording.storages import Clock, Storages
from pytracer.decode.types.journal import (
    AnyFact,
    ChildStatus,
    CommandLine,
    Environment,
    P,
    Rank,
    UncaughtException,
    Versions,
    select,
)
from pytracer.decode.types.snapshot import Collective, Crash, Damage, Snapshot
from pytracer.decode.types.storage_table import Part, StorageTable

_ARCHES = {1: "x86-64", 2: "aarch64"}
_STEP_SOURCES = {1: "pytracer.step", 2: "optimizer steps"}
_COUNTERS = (
    "journal_dropped",
    "storages_dropped",
    "unknown_frees",
    "stale_storages",
    "threads_dropped",
    "faults_repaired",
    "hook_errors",
    "collectives",
    "live_reports",
    "device_blocks_dropped",
    "device_unknown_frees",
    "foreign_dropped",
    "storages_unfollowed",
    "names_dropped",
    "guard_damage",
    "redacted",
)
_WORKER_FILES = "torch/utils/data/_utils/"


# Read lightly, a recording takes a tenth of the time and of the memory: how the process ended, and its peers.
_LIGHT_REGIONS = frozenset(Region) - {
    Region.EPOCHS, Region.RECORDS, Region.FREED_STORAGES, Region.STORAGES, Region.EXTERNAL_ALLOCATIONS,
    Region.SCOPED_TENSORS, Region.MEMORY,
    Region.THREAD_STACKS, Region.THREAD_FRAMES, Region.GUARDED, Region.NAMES, Region.HOLDERS,
    Region.ARGUMENTS,
    Region.DEVICE_BLOCKS, Region.DEVICE_FREED, Region.DEVICE_SEGMENTS, Region.GRAPH_INPUTS,
}  # fmt: skip
_HEAVY_ENTRIES = (Entry.MODULE, Entry.BUCKETS, Entry.UNIT)
LAST_COLLECTIVES = 64


def read_box(
    path: str | os.PathLike[str], *, light: bool = False, last_collectives: int = LAST_COLLECTIVES
) -> Snapshot:
    """Decodes one black box.

    Args:
        path: the file; it may be cut off anywhere, corrupted, or still being written.
        light: leave out what only matters for processes that are looked at closely; see `Snapshot.light`.
        last_collectives: how many to keep of those that were completed, when reading lightly.

    Returns:
        What could be read; what could not is in `Snapshot.damage`.

    Raises:
        InputError: the file is missing, empty, a directory, unreadable, foreign, or of a newer major version.
    """
    box = BoxFile(path, _LIGHT_REGIONS if light else None)
    header = box.header
    if header.trimmed and header.state == State.CRASHED:
        box.note(0, "crashed after exit(0), when the tables of storages had been returned")
    journal = Journal(box)
    rings = Rings(box, journal)
    clock = Clock(box, journal)
    storages = Storages(box, journal, clock, rings.threads)
    parts = storages.read()
    crash_reader = CrashReader(box, storages, journal)
    crash = crash_reader.read()
    facts = journal.facts(_HEAVY_ENTRIES if light else ())
    ended_at = crash_reader.device_sequence
    devices = Devices(box, journal, storages.clock, ended_at if ended_at is not None else _events_at_exception(facts))
    blocks = devices.blocks()
    table = StorageTable(*parts, Part.of(blocks, on_cpu=False))
    crash = _essence(crash) if light and crash is not None else crash
    collectives = Collectives(box, journal, facts, last_collectives if light else None, devices.streams())
    events = [] if light else sorted([*rings.events, *collectives.events()], key=lambda event: event.mono_ns)
    moments = rings.last_moments() if light else (event.mono_ns for event in events[-1:])
    state = _state(header.state)
    worker = worker_of(facts, rings.events, header.created_mono_ns)
    cpu = StorageTable(*parts)
    counts = {name: getattr(header, name) for name in _COUNTERS} | {
        "dropped": sum(getattr(header, name) for name in _COUNTERS if name.endswith("_dropped")),
        "records": len(events),
        "overwritten_records": rings.overwritten_records,
        "torn_records": rings.torn_records,
        "torn_collectives": collectives.torn,
        "unknown_records": rings.unknown_records,
        "entries": len(journal.entries),
        "torn_entries": journal.torn,
        "unknown_who": journal.unknown_sites,
        "live_storages": cpu.count("live"),
        "freed_storages": cpu.count("freed"),
        "storages_being_freed": storages.being_freed,
        "busy_slots": storages.busy_slots,
        "torn_slots": storages.torn_slots,
        "torn_graves": storages.torn_freed,
        "live_device_blocks": sum(item.state == "live" for item in blocks),
        "torn_device_items": devices.torn,
        "busy_foreign": storages.busy_foreign,
        "threads": len(rings.threads.by_index),
    }
    return Snapshot(
        path=box.path,
        version=(header.major, header.minor),
        pid=header.pid,
        ppid=header.ppid,
        uid=header.uid,
        host=header.host,
        boot_id=header.boot_id,
        arch=_ARCHES.get(header.arch, f"unknown ({header.arch})"),
        page_bytes=header.page_bytes,
        start_ticks=header.start_ticks,
        created_mono_ns=header.created_mono_ns,
        created_wall_ns=header.created_wall_ns,
        state=state,
        exit_code=header.exit_code if state == State.EXITING.name else None,
        exit_mono_ns=header.exit_mono_ns or None,
        step=header.step if header.step >= 0 else None,
        step_source=_STEP_SOURCES.get(header.step_source),
        preloaded=bool(header.preloaded),
        python_minor=header.python_minor or None,
        argv=command_line.argv if (command_line := _last(facts, CommandLine)) else (),
        environment=environment.variables if (environment := _last(facts, Environment)) else {},
        rank=_last(facts, Rank),
        versions=_last(facts, Versions) or Versions(),
        facts=facts,
        events=tuple(events),
        threads=tuple(rings.threads.by_index.values()),
        collectives=tuple(collectives.items),
        groups=collectives.groups,
        scoped_tensors=scoped_tensors(box, journal),
        storages=table,
        segments=devices.segments(),
        cuda_graphs=devices.graphs(),
        cuda_streams=devices.streams(),
        out_of_memory=devices.out_of_memory(),
        sends=signal_sends(journal, header.created_mono_ns),
        process_group=header.process_group or None,
        waits=tuple(f.data.end for f in select(facts, ChildStatus) if f.data.end is not None),
        crash=None if crash_reader.state in (CrashState.LIVE, CrashState.EXIT) else crash,
        live=crash if crash_reader.state == CrashState.LIVE else None,
        ending=crash if crash_reader.state == CrashState.EXIT else None,
        counts=counts,
        damage=_damage(box),
        dataloader_worker=worker is not None or _is_dataloader_worker(journal, header.created_mono_ns),
        worker=worker,
        last_mono_ns=_last_moment(facts, moments, collectives.items),
        named={} if light else Names(box, journal).read(),
        guard=read_guard(box, journal, clock),
        light=light,
    )


def _events_at_exception(facts: Sequence[AnyFact]) -> int | None:
    """Number of the devices' last event before the exception that ended the process; None: none did."""
    ended = _last([f for f in facts if not getattr(f.data, "on_its_way", None)], UncaughtException)
    return ended.device_events or None if ended is not None else None


def _last(facts: Sequence[AnyFact], kind: type[P]) -> P | None:
    return next((fact.data for fact in select(reversed(facts), kind)), None)


def _essence(crash: Crash) -> Crash:
    """A crash without memory and other threads, with only the mappings around what it touched."""
    touched = (crash.fault_addr, crash.pc, crash.sp)
    at = [bisect_left(crash.mappings, addr, key=lambda mapping: mapping.end - 1) for addr in touched]
    near = sorted({j for i in at for j in (i - 1, i, i + 1) if 0 <= j < len(crash.mappings)})
    mappings = tuple(crash.mappings[i] for i in near)
    return replace(crash, mappings=mappings, images=(), code_pointers=(), python_threads=())


def _last_moment(facts: Sequence[AnyFact], moments: Iterable[int], collectives: Sequence[Collective]) -> int | None:
    """The process was alive at this time, whatever happened later."""
    times = [*moments, *(fact.mono_ns for fact in facts[-1:])]
    times += [item.completed_ns or item.started_ns or item.scheduled_ns or 0 for item in collectives]
    return max(times, default=0) or None


def _state(number: int) -> str:
    try:
        return State(number).name
    except ValueError:
        return f"UNKNOWN_{number}"


def _damage(box: BoxFile) -> tuple[Damage, ...]:
    if not box.damage_left_out:
        return tuple(box.damage)
    return (*box.damage, Damage(box.name, len(box.data), f"{box.damage_left_out} more places"))


def _is_dataloader_worker(journal: Journal, created_mono_ns: int) -> bool:
    """True when this process itself, not the one it was forked from, ran the code of a DataLoader worker.

    `worker.py` and `fetch.py` lie in that directory and run in workers only; with zero workers `fetch.py` runs in the
    training process as well, so it alone proves nothing.
    """
    if not journal.mentions(_WORKER_FILES):
        return False
    return any(_WORKER_FILES in f and f.endswith("worker.py") for f in journal.files_since(created_mono_ns))
