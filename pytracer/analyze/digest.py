"""Reduces the recordings of one node to a digest of at most 8 KB for each rank.

Nothing is concluded here but which processes are suspects: of these, more is kept. What is dropped to fit is dropped
in the order of `_STEPS`; every reduced snapshot is `light`, so that no rule takes what is missing for absent.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from pytracer._library_files import is_library_file
from pytracer._version import __version__
from pytracer.analyze.engine import CLOSELY, job_view
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.formats.digest import Digest, encode_digest
from pytracer.decode.job.digest_names import SUFFIX
from pytracer.decode.job.digests import last_collectives
from pytracer.decode.types.journal import AnyFact, Buckets, Module, Uninterpreted, Unit
from pytracer.decode.types.snapshot import (
    Collective,
    Crash,
    Damage,
    Job,
    LauncherRecord,
    Process,
    PythonFrame,
    Snapshot,
)
from pytracer.decode.types.storage_table import StorageTable
from pytracer.decode.types.storages import Storage

BYTES_PER_RANK = 8192
_MOST_STORAGES = 64
_MOST_NEAR = 8  # for each address
_MOST_VALUES = 64  # of the variables of a process that is not looked at closely: those of its innermost functions


class _Step(msgspec.Struct, frozen=True):
    """How much is kept: collectives of each rank, frames of a stack, and of suspects more than of the others."""

    collectives: int
    frames: int
    suspects: bool = True  # storages, names, records and threads of suspects
    layouts: bool = True  # modules, buckets and FSDP units of suspects
    helpers: bool = True  # processes that ended well and are no ranks
    samples: int = 32  # of the launcher's measurements
    facts: int = 256  # of one kind: the first and the last ones
    addresses: bool = True  # of completed collectives
    groups: int | None = None  # of each rank; of the rest nothing is known, then
    failed: int | None = None  # processes that are no ranks and no agents
    text: int | None = None  # letters of messages and words of command lines


_STEPS = (
    _Step(64, 128),
    _Step(64, 64, layouts=False),
    _Step(32, 48, layouts=False, helpers=False, samples=8, facts=64),
    _Step(16, 32, layouts=False, helpers=False, samples=4, facts=16),
    _Step(16, 24, suspects=False, layouts=False, helpers=False, samples=1, facts=8),
    _Step(4, 12, suspects=False, layouts=False, helpers=False, samples=1, facts=2),
    _Step(1, 4, suspects=False, layouts=False, helpers=False, samples=0, facts=1),
    _Step(1, 4, suspects=False, layouts=False, helpers=False, samples=0, facts=1, addresses=False, failed=32, text=400),
    *(
        _Step(1, frames, suspects=False, layouts=False, helpers=False, samples=0, facts=1, addresses=False,
              groups=groups, failed=failed, text=text)
        for frames, groups, failed, text in ((4, 64, 8, 200), (3, 16, 4, 200), (2, 4, 2, 100), (1, 1, 1, 50))
    ),
)  # fmt: skip


def make_digest(job: Job) -> bytes:
    """The digest of a job, of which all recordings of a node have been read, lightly or in full."""
    view = job_view(job, RunClock(job))
    suspects = [death.view.index for death in view.deaths if death.primary is not False][:CLOSELY]
    content = b""
    for step in _STEPS:
        content = encode_digest(_digest(view.job, suspects, step))
        if len(content) <= most_bytes(job):
            break
    return content


def most_bytes(job: Job) -> int:
    """What the digest of a job is to take. More is possible only if hundreds of ranks' identities do not fit."""
    return BYTES_PER_RANK * max(1, len(job.ranks))


def _digest(job: Job, suspects: Sequence[int], step: _Step) -> Digest:
    wanted = _wanted(job, suspects, step)
    kept = [(index, item) for index, item in enumerate(job.processes) if index in wanted]
    groups = _groups(job, step.groups) if step.groups is not None else None
    pids = {item.snapshot.pid for _, item in kept}
    reduced = replace(
        job,
        launcher=_launcher(job.launcher, step, pids) if job.launcher is not None else None,
        more_launchers=tuple(_launcher(item, step, pids) for item in job.more_launchers),
        damage=(*job.damage[:16], *_left_out(job, len(kept), groups, step)),
        processes=tuple(
            _process(
                item,
                step,
                groups[index] if groups is not None else None,
                pids,
                closely=step.suspects and index in suspects,
            )
            for index, item in kept
        ),
    )
    return Digest(reduced, __version__, len(job.processes) - len(kept))


def _wanted(job: Job, suspects: Sequence[int], step: _Step) -> set[int]:
    """The processes that are kept: ranks and agents, and of the others those that may have died first."""
    some = [index for index, item in enumerate(job.processes) if step.helpers or not _is_helper(item)]
    if step.failed is None:
        return set(some)
    always = {index for index in some if job.processes[index].role in ("rank", "launcher")}
    rest = sorted(
        set(some) - always, key=lambda index: (index not in suspects, job.processes[index].ended_mono_ns or 0)
    )
    return always | set(rest[: step.failed])


def _groups(job: Job, most: int) -> dict[int, set[str | None]]:
    """By the index of each rank, its groups that are kept: those in which a rank of the node waits, then the latest."""
    waited = {item.group for process in job.ranks for item in process.snapshot.collectives if item.state != "completed"}
    found: dict[int, set[str | None]] = {}
    for index, process in enumerate(job.processes):
        latest = dict.fromkeys(item.group for item in reversed(process.snapshot.collectives))
        found[index] = set(sorted(latest, key=lambda name: name not in waited)[:most])
    return found


def _left_out(job: Job, kept: int, groups: dict[int, set[str | None]] | None, step: _Step) -> list[Damage]:
    """What the report says of a digest that had to leave out what a verdict may rest on."""
    bound = f"to stay below {BYTES_PER_RANK >> 10} KB for each rank"
    host = job.processes[0].snapshot.host
    most = max((len(item.snapshot.groups) for item in job.ranks), default=0)
    found = []
    if groups is not None and step.groups is not None and most > step.groups:
        found.append(f"its digest has {step.groups} of up to {most} process groups of each rank, {bound}")
    failed = sum(not _is_helper(item) for item in job.processes)
    if failed > kept:
        found.append(f"its digest leaves out {failed - kept} processes that failed, {bound}")
    return [Damage(host, 0, what) for what in found]


def _is_helper(process: Process) -> bool:
    """A process that no rule asks about: a DataLoader worker or a child that ended well."""
    return process.role in ("dataloader-worker", "child", "process") and (
        process.status_kind == "running" or (process.status_kind == "exited" and not process.exit_code)
    )


def _launcher(record: LauncherRecord, step: _Step, pids: Collection[int]) -> LauncherRecord:
    seen = record.witness
    if step.text is not None:
        record = replace(record, command=_cut(record.command, step.text))
    if seen is None:
        return record
    log = replace(seen.kernel_log, lines=seen.kernel_log.lines[-step.samples - 4 :])
    samples = seen.samples[-step.samples :] if step.samples else ()
    seen = replace(seen, kernel_log=log, samples=samples)
    if step.text is not None:
        here = (replace(item, command=_cut(item.command, step.text)) for item in seen.processes if item.pid in pids)
        seen = replace(seen, processes=tuple(here), unseen=seen.unseen[: step.failed])
    return replace(record, witness=seen)


def _process(
    process: Process, step: _Step, groups: set[str | None] | None, pids: Collection[int], *, closely: bool
) -> Process:
    snapshot = _snapshot(process.snapshot, step, closely=closely)
    if groups is not None:
        snapshot = replace(
            snapshot,
            groups=tuple(item for item in snapshot.groups if item.name in groups or item.begun_ns is not None),
            collectives=tuple(item for item in snapshot.collectives if item.group in groups),
        )
    if not step.addresses:
        snapshot = replace(snapshot, collectives=tuple(map(_without_addresses, snapshot.collectives)))
    if step.text is None:
        return replace(process, snapshot=snapshot)
    snapshot = replace(
        snapshot,
        waits=tuple(item for item in snapshot.waits if item.pid in pids),
        cuda_streams=snapshot.cuda_streams[:4],
        argv=_cut(snapshot.argv, step.text),
        facts=tuple(replace(fact, data=_cut(fact.data, step.text, step.frames)) for fact in snapshot.facts),
        sends=_cut(snapshot.sends[-step.frames :], step.text, step.frames),
    )
    return replace(process, snapshot=snapshot, exception=_cut(process.exception, step.text, step.frames))


def _without_addresses(item: Collective) -> Collective:
    if item.state != "completed":
        return item
    return replace(item, buffer_addr=None, storage_addr=None, output_addr=None, output_storage_addr=None)


def _cut(data: Any, letters: int, items: int = 16) -> Any:
    """A fact, or what is in one, with shorter texts, and fewer frames or words."""
    if isinstance(data, str):
        return data if len(data) <= letters else data[: letters - 3] + "..."
    if isinstance(data, tuple) and data and isinstance(data[0], PythonFrame):
        return _innermost(data, items)
    if isinstance(data, tuple):
        return tuple(_cut(item, letters, items) for item in data[:items])
    if isinstance(data, msgspec.Struct):
        changed = {name: _cut(getattr(data, name), letters, items) for name in data.__struct_fields__}
        return msgspec.structs.replace(data, **changed)
    if is_dataclass(data) and not isinstance(data, type):
        return replace(data, **{item.name: _cut(getattr(data, item.name), letters, items) for item in fields(data)})
    return data


def _snapshot(snapshot: Snapshot, step: _Step, *, closely: bool) -> Snapshot:
    """Without what is large, and of most processes decides nothing."""
    near = _near(snapshot) if closely else []
    bases = {item.base for item in near}
    dropped: tuple[type, ...] = (Uninterpreted,)
    if not (closely and step.layouts):
        dropped = (Module, Buckets, Unit, Uninterpreted)
    events = [event for event in snapshot.events if not isinstance(event.data, Collective)]
    guard = snapshot.guard
    small = replace(
        snapshot,
        facts=_facts(snapshot.facts, dropped, step.facts),
        events=tuple(events[-_MOST_STORAGES:]) if closely else (),
        threads=(),
        storages=StorageTable.of(*near),
        crash=_crash(snapshot.crash, step, closely=closely),
        live=_crash(snapshot.live, step, closely=closely),
        ending=_crash(snapshot.ending, step, closely=closely),
        segments=(),
        cuda_graphs=snapshot.cuda_graphs if closely else (),
        scoped_tensors=(),
        named={base: tensors for base, tensors in snapshot.named.items() if base in bases},
        guard=replace(guard, storages=(), damaged=guard.damaged[:4]) if guard is not None else None,
        damage=snapshot.damage[:4],
        light=True,
    )
    return last_collectives(small, step.collectives)


def _facts(facts: Sequence[AnyFact], dropped: tuple[type, ...], most: int) -> tuple[AnyFact, ...]:
    """Of each kind the first `most` and the last ones, in their order."""
    kept = [fact for fact in facts if not isinstance(fact.data, dropped)]
    by_kind: dict[type, list[AnyFact]] = {}
    for fact in kept:
        by_kind.setdefault(type(fact.data), []).append(fact)
    wanted = {id(fact) for same in by_kind.values() for fact in (*same[:most], *same[-most:])}
    return tuple(fact for fact in kept if id(fact) in wanted)


def _near(snapshot: Snapshot) -> list[Storage]:
    """The storages around what the crash touched."""
    crash = snapshot.crash
    if crash is None:
        return []
    addrs = [crash.fault_addr, *crash.registers.values(), *(item.base for item in crash.arguments)]
    addrs += [item.storage.base for item in crash.hits] + [item.base for item in crash.holders]
    found: dict[tuple[int, tuple[int, int], str], Storage] = {}
    for addr in dict.fromkeys(addr for addr in addrs if addr):
        for item in snapshot.storages.around(addr)[-_MOST_NEAR:]:
            found.setdefault((item.base, item.order, item.state), item)
    return list(found.values())[:_MOST_STORAGES]


def _crash(crash: Crash | None, step: _Step, *, closely: bool) -> Crash | None:
    if crash is None:
        return None
    native = crash.native_stack[: step.frames]
    cut = len(native) < len(crash.native_stack)
    touched = [crash.fault_addr, crash.pc, crash.sp]
    images = {frame.image for frame in native}
    return replace(
        crash,
        native_stack=native,
        native_gap=crash.native_total - len(native) if cut else crash.native_gap,
        native_tail=0 if cut else crash.native_tail,
        python_stack=_innermost(crash.python_stack, step.frames),
        python_threads=crash.python_threads[:8] if closely and step.layouts else (),
        mappings=tuple(item for item in crash.mappings if _is_near(item.start, item.end, touched)),
        images=tuple(item for item in crash.images if item.path in images) if closely else (),
        code_pointers=crash.code_pointers[:16] if closely else (),
        threads=crash.threads[:8] if closely and step.layouts else (),
        memory=crash.memory[:4] if closely else (),
        holders=crash.holders[:16] if closely else (),
        values=crash.values if closely else crash.values[:_MOST_VALUES],
        arguments=crash.arguments[:32] if closely else (),
        hits=crash.hits[:16],
        overruns=crash.overruns if closely else (),
    )


def _innermost(stack: Sequence[PythonFrame], most: int) -> tuple[PythonFrame, ...]:
    """With the innermost frame of the program: the headline has it."""
    own = (frame for frame in stack[most:] if not is_library_file(frame.file))
    found = tuple(stack[:most])
    return found if any(not is_library_file(frame.file) for frame in found) else (*found, *islice(own, 1))


def _is_near(start: int, end: int, addrs: Iterable[int]) -> bool:
    return any(start - (1 << 21) <= addr < end + (1 << 21) for addr in addrs)


def digest_name(job: Job, directory: Path | None = None) -> str:
    """A name that no other node, and no other run of this node, has; a later digest of the same run replaces it."""
    first = job.processes[0].snapshot
    place = os.path.realpath(directory if directory is not None else job.directory)
    mark = hashlib.sha256(f"{first.boot_id} {place}".encode()).hexdigest()[:8]
    host = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in first.host) or "node"
    return f"{host}-{mark}{SUFFIX}"
