"""Reduces the recordings of one node to a digest of at most 8 KB for each rank.

Nothing is concluded here but which processes are suspects: of these, more is kept. What is dropped to fit is dropped
in the order of `_STEPS`; every reduced snapshot is `light`, so that no rule takes what is missing for absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pytracer._version import __version__
from pytracer.analyze.engine import CLOSELY, job_view
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.formats.digest import SUFFIX, Digest, encode_digest
from pytracer.decode.job.digests import last_collectives
from pytracer.decode.types.journal import AnyFact, Buckets, Module, Uninterpreted, Unit
from pytracer.decode.types.snapshot import Collective, Crash, Job, LauncherRecord, Process, Snapshot
from pytracer.decode.types.storage_table import StorageTable
from pytracer.decode.types.storages import Storage

BYTES_PER_RANK = 8192
_MOST_STORAGES = 64
_MOST_NEAR = 8  # for each address


@dataclass(frozen=True)
class _Step:
    """How much is kept: collectives of each rank, frames of a stack, and of suspects more than of the others."""

    collectives: int
    frames: int
    suspects: bool = True  # storages, names, records and threads of suspects
    layouts: bool = True  # modules, buckets and FSDP units of suspects
    helpers: bool = True  # processes that ended well and are no ranks
    samples: int = 32  # of the launcher's measurements
    facts: int = 256  # of one kind: the first and the last ones


_STEPS = (
    _Step(64, 128),
    _Step(64, 64, layouts=False),
    _Step(32, 48, layouts=False, helpers=False, samples=8, facts=64),
    _Step(16, 32, layouts=False, helpers=False, samples=4, facts=16),
    _Step(16, 24, suspects=False, layouts=False, helpers=False, samples=1, facts=8),
    _Step(4, 12, suspects=False, layouts=False, helpers=False, samples=1, facts=2),
    _Step(1, 4, suspects=False, layouts=False, helpers=False, samples=0, facts=1),
)


def make_digest(job: Job) -> bytes:
    """The digest of a job, of which all recordings of a node have been read, lightly or in full."""
    view = job_view(job, RunClock(job))
    suspects = [death.view.index for death in view.deaths if death.primary is not False][:CLOSELY]
    limit = BYTES_PER_RANK * max(1, len(job.ranks))
    content = b""
    for step in _STEPS:
        content = encode_digest(_digest(view.job, set(suspects), step))
        if len(content) <= limit:
            break
    return content


def _digest(job: Job, suspects: Collection[int], step: _Step) -> Digest:
    kept = [(index, item) for index, item in enumerate(job.processes) if step.helpers or not _is_helper(item)]
    reduced = replace(
        job,
        launcher=_launcher(job.launcher, step) if job.launcher is not None else None,
        more_launchers=tuple(_launcher(item, step) for item in job.more_launchers),
        damage=job.damage[:16],
        processes=tuple(
            replace(item, snapshot=_snapshot(item.snapshot, step, closely=step.suspects and index in suspects))
            for index, item in kept
        ),
    )
    return Digest(reduced, __version__, len(job.processes) - len(kept))


def _is_helper(process: Process) -> bool:
    """A process that no rule asks about: a DataLoader worker or a child that ended well."""
    return process.role in ("dataloader-worker", "child", "process") and (
        process.status_kind == "running" or (process.status_kind == "exited" and not process.exit_code)
    )


def _launcher(record: LauncherRecord, step: _Step) -> LauncherRecord:
    seen = record.witness
    if seen is None:
        return record
    log = replace(seen.kernel_log, lines=seen.kernel_log.lines[-step.samples - 4 :])
    samples = seen.samples[-step.samples :] if step.samples else ()
    return replace(record, witness=replace(seen, kernel_log=log, samples=samples))


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
        python_stack=crash.python_stack[: step.frames],
        python_threads=crash.python_threads[:8] if closely and step.layouts else (),
        mappings=tuple(item for item in crash.mappings if _is_near(item.start, item.end, touched)),
        images=tuple(item for item in crash.images if item.path in images) if closely else (),
        code_pointers=crash.code_pointers[:16] if closely else (),
        threads=crash.threads[:8] if closely and step.layouts else (),
        memory=crash.memory[:4] if closely else (),
        holders=crash.holders[:16] if closely else (),
        arguments=crash.arguments[:32] if closely else (),
        hits=crash.hits[:16],
    )


def _is_near(start: int, end: int, addrs: Iterable[int]) -> bool:
    return any(start - (1 << 21) <= addr < end + (1 << 21) for addr in addrs)


def digest_name(job: Job) -> str:
    """A name that no other node, and no other run of this node, has; a later digest of the same run replaces it."""
    first = job.processes[0].snapshot
    mark = hashlib.sha256(f"{first.boot_id} {job.directory}".encode()).hexdigest()[:8]
    host = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in first.host) or "node"
    return f"{host}-{mark}{SUFFIX}"
