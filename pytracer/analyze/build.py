"""Job -> the parts of the report that are facts: processes, faults, stacks. Conclusions are the rules'
work.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

from pytracer._words import hex_addr
from pytracer.analyze import report as r
from pytracer.analyze.address import Place, describe_address, objects_in
from pytracer.analyze.clock import RunClock
from pytracer.analyze.communication import ddp_modules, recent_collectives
from pytracer.analyze.instruction import Instruction, decode_instruction, page_fault_access
from pytracer.analyze.signals import SI_KERNEL, SIGBUS, SIGSEGV, code_name, signal_name
from pytracer.analyze.view import ProcessView
from pytracer.decode.snapshot import (
    Crash,
    Job,
    Mapping,
    Moment,
    NativeFrame,
    Process,
    PythonFrame,
    Snapshot,
    ThreadInfo,
    Who,
)

_KINDS_BY_NAME = (
    ("pt_autograd", "autograd"),
    ("pt_gloo", "gloo"),
    ("gloo", "gloo"),
    ("pt_nccl_watchdg", "nccl-watchdog"),
    ("omp", "openmp"),
)
_OPENMP_IMAGES = ("libgomp", "libiomp5", "libomp")


def build_view(index: int, process: Process, clock: RunClock) -> ProcessView:
    """One process with everything about it that needs no judgement."""
    snapshot = process.snapshot
    crash = snapshot.crash if snapshot.crash is not None and not snapshot.crash.repaired else None
    instruction = _instruction(snapshot, crash)
    place = _place(snapshot, crash, instruction)
    python_stack = _python_stack(process, crash)
    recent = recent_collectives(snapshot)
    report = r.ProcessReport(
        pid=snapshot.pid,
        ppid=snapshot.ppid,
        host=snapshot.host,
        rank=process.rank,
        local_rank=process.local_rank,
        world_size=process.world_size,
        role=process.role,
        command=list(snapshot.argv),
        started=clock.relative(snapshot, snapshot.created_mono_ns),
        ended=clock.relative(snapshot, process.ended_mono_ns),
        status=r.Status(
            kind=process.status_kind,
            exit_code=process.exit_code,
            signal=process.signal,
            reported_by=process.reported_by,
        ),
        signal=_signal(process, crash),
        fault=_fault(snapshot, crash, place, instruction, clock),
        thread=_thread(snapshot, crash),
        python_stack=python_stack,
        native_stack=[_native(frame) for frame in crash.native_stack] if crash else None,
        threads=_threads(snapshot, crash),
        registers={name: hex_addr(value) for name, value in crash.registers.items()} if crash else None,
        exception=_exception(process),
        step=snapshot.step,
        autograd_node=r.AutogradNode(name=crash.node, sequence_nr=crash.node_sequence_nr, thread=crash.thread_name)
        if crash and crash.node
        else None,
        last_op=_last_op(snapshot, crash),
        last_collective=recent[0] if recent else None,
        recent_collectives=recent,
        ddp=ddp_modules(snapshot),
        memory=r.Memory(cpu_storages_bytes=sum(item.nbytes for item in snapshot.storages if item.state == "live")),
        environment=dict(snapshot.environment),
        notes=_notes(snapshot, crash),
    )
    return ProcessView(index, process, report, place, instruction)


def _notes(snapshot: Snapshot, crash: Crash | None) -> list[str]:
    """What the recorder itself could not do."""
    notes = list(dict.fromkeys(str(fact.data) for fact in snapshot.facts if fact.kind == "NOTE"))
    for steps, why in ((crash.steps_faulted, "met a fault"), (crash.steps_late, "took too long")) if crash else ():
        notes += [f"the crash handler's step {step} {why}: what it should have written is incomplete" for step in steps]
    return notes


def build_run(job: Job, clock: RunClock) -> r.Run:
    """The run as a whole."""
    snapshots = [process.snapshot for process in job.processes]
    versions = next((item.versions for item in (*(p.snapshot for p in job.ranks), *snapshots) if item.versions), {})
    torchrun = any(process.role == "launcher" for process in job.processes)
    started = datetime.fromtimestamp(clock.start_wall_ns / 1e9, timezone.utc) if clock.start_wall_ns else None
    root = min(snapshots, key=lambda item: item.created_wall_ns, default=None)
    command = job.launcher.command if job.launcher else root.argv if root else ()
    sizes = [process.world_size for process in job.processes if process.world_size is not None]
    return r.Run(
        id=os.path.basename(os.path.abspath(job.directory)),
        directory=job.directory,
        started=started.isoformat(timespec="milliseconds") if started else None,
        launcher="torchrun" if torchrun else None,
        command=list(command),
        world_size=max(sizes, default=None),
        hosts=sorted({item.host for item in snapshots}),
        torch=versions.get("torch"),
        cuda=versions.get("cuda"),
        python=versions.get("python"),
    )


def build_damage(job: Job) -> list[r.DamageReport]:
    """What could not be read, of all boxes."""
    found = dict.fromkeys((*job.damage, *(item for process in job.processes for item in process.snapshot.damage)))
    return [r.DamageReport(file=item.file, offset=item.offset, what=item.what) for item in found]


def build_counts(job: Job) -> dict[str, int]:
    """Counters of all boxes added up, plus `records` and `processes`."""
    counts = {"processes": len(job.processes), "records": 0}
    for process in job.processes:
        counts["records"] += len(process.snapshot.events)
        for name, value in process.snapshot.counts.items():
            if name != "records":
                counts[name] = counts.get(name, 0) + value
    return counts


def register(crash: Crash, *names: str) -> int | None:
    """A saved register by any of its names, upper or lower case."""
    lower = {name.lower(): value for name, value in crash.registers.items()}
    return next((lower[name] for name in names if name in lower), None)


def _instruction(snapshot: Snapshot, crash: Crash | None) -> Instruction | None:
    if crash is None or crash.code <= 0 or not snapshot.arch.startswith("x86"):
        return None
    registers = {name.lower(): value for name, value in crash.registers.items()}
    return decode_instruction(crash.code_bytes, registers, crash.pc, crash.fault_addr)


def _place(snapshot: Snapshot, crash: Crash | None, instruction: Instruction | None) -> Place | None:
    """The address that was wanted. x86-64 hides non-canonical ones: SI_KERNEL, address 0 - then the operands tell."""
    if crash is None or crash.code <= 0 or crash.signal not in (SIGSEGV, SIGBUS):
        return None
    if crash.code == SI_KERNEL and crash.fault_addr == 0:
        if instruction is None or instruction.addr is None:
            return Place(0, "non-canonical")
        return describe_address(snapshot, instruction.addr)
    return describe_address(snapshot, crash.fault_addr)


def _fault(
    snapshot: Snapshot, crash: Crash | None, place: Place | None, instruction: Instruction | None, clock: RunClock
) -> r.Fault | None:
    if crash is None or place is None:
        return None
    hidden = crash.code == SI_KERNEL and crash.fault_addr == 0
    known = not hidden or (instruction is not None and instruction.addr is not None)
    access = page_fault_access(register(crash, "trapno", "trap"), crash.error_code)
    execute = access == "execute" or (crash.pc == place.addr and known)
    return r.Fault(
        addr=hex_addr(place.addr) if known else None,
        access="execute" if execute else access or (instruction.access if instruction else None),
        size=instruction.size if instruction and not execute else None,
        kind=place.kind,
        storage=_storage(snapshot, place, clock),
        bucket=_bucket(place),
        mapping=_mapping(place.mapping),
        instruction=instruction.words if instruction and not execute else None,
    )


def _storage(snapshot: Snapshot, place: Place, clock: RunClock) -> r.StorageReport | None:
    storage = place.storage
    if storage is None:
        return None
    freed = storage.freed
    return r.StorageReport(
        base=hex_addr(storage.base),
        nbytes=storage.nbytes,
        offset_bytes=place.offset_bytes,
        distance_bytes=place.distance_bytes,
        device="cpu",
        state=storage.state,
        names=list(place.names),
        allocated=_origin(snapshot, storage.allocated, storage.allocated_by, storage.allocated_thread, clock),
        freed=_origin(snapshot, freed, storage.freed_by or Who(), storage.freed_thread, clock) if freed else None,
        found=place.found,
        earlier=list(place.earlier),
    )


def _origin(snapshot: Snapshot, moment: Moment, who: Who, tid: int | None, clock: RunClock) -> r.Origin:
    name = next((thread.name for thread in snapshot.threads if thread.tid == tid), None)
    return r.Origin(
        time=clock.relative(snapshot, moment.mono_ns),
        thread=name or (f"thread {tid}" if tid is not None else None),
        step=moment.step,
        python=_python(who.python) if who.python else None,
        caller=_python(who.caller) if who.caller else None,
        autograd_node=who.node,
    )


def _bucket(place: Place) -> r.Bucket | None:
    bucket = place.bucket
    if bucket is None:
        return None
    return r.Bucket(
        module=bucket.module,
        index=bucket.index,
        generation=bucket.generation,
        nbytes=bucket.nbytes,
        parameters=list(bucket.parameters),
        offset_bytes=bucket.offset_bytes,
        parameter=bucket.parameter,
    )


def _mapping(mapping: Mapping | None) -> r.MappingReport | None:
    if mapping is None:
        return None
    size: int | None = None
    if mapping.path.startswith("/"):
        try:
            size = os.stat(mapping.path).st_size
        except (OSError, ValueError):  # gone, or on another machine
            size = None
    return r.MappingReport(
        path=mapping.path or None,
        start=hex_addr(mapping.start),
        end=hex_addr(mapping.end),
        permissions=mapping.permissions,
        file_size=size,
    )


def _signal(process: Process, crash: Crash | None) -> r.Signal | None:
    if crash is not None:
        return r.Signal(
            number=crash.signal,
            name=signal_name(crash.signal),
            code=code_name(crash.signal, crash.code),
            sender_pid=crash.sender_pid if crash.code <= 0 else None,
        )
    if process.signal is None:
        return None
    return r.Signal(number=process.signal, name=signal_name(process.signal))


def _thread_kind(snapshot: Snapshot, tid: int, name: str, has_python: bool, images: tuple[str, ...] = ()) -> str:
    if tid == snapshot.pid:
        return "main"
    for prefix, kind in _KINDS_BY_NAME:
        if name.startswith(prefix):
            return kind
    if any(image.rsplit("/", 1)[-1].startswith(_OPENMP_IMAGES) for image in images):
        return "openmp"
    return "python" if has_python else "native"


def _thread(snapshot: Snapshot, crash: Crash | None) -> r.Thread | None:
    if crash is None:
        return None
    images = tuple(frame.image for frame in crash.native_stack if frame.image)
    kind = _thread_kind(snapshot, crash.tid, crash.thread_name, crash.python_matched, images)
    return r.Thread(tid=crash.tid, name=crash.thread_name, kind=kind)


def _threads(snapshot: Snapshot, crash: Crash | None) -> list[r.ThreadReport]:
    """The crashed thread first, then all that were alive and are known by their records or their Python state."""
    reports: list[r.ThreadReport] = []
    python = dict(crash.python_threads) if crash else {}
    if crash is not None:
        thread = _thread(snapshot, crash) or r.Thread()
        reports.append(
            r.ThreadReport(
                tid=crash.tid,
                name=thread.name,
                kind=thread.kind,
                crashed=True,
                python_stack=[_python(frame) for frame in crash.python_stack],
                native_stack=[_native(frame) for frame in crash.native_stack],
            )
        )
    seen = {crash.tid} if crash else set()
    matched = {crash.python_threads[0][0]} if crash and crash.python_matched and crash.python_threads else set()
    by_pthread: dict[int, ThreadInfo] = {item.pthread: item for item in snapshot.threads if not item.ended}
    for pthread, frames in python.items():
        info = by_pthread.get(pthread)
        if pthread in matched or (info is not None and info.tid in seen):
            continue
        seen.add(info.tid if info else -1)
        reports.append(
            r.ThreadReport(
                tid=info.tid if info else None,
                name=info.name if info else None,
                kind=_thread_kind(snapshot, info.tid, info.name, True) if info else "python",
                crashed=False,
                python_stack=[_python(frame) for frame in frames],
            )
        )
    for info in snapshot.threads:
        if not info.ended and info.tid not in seen:
            kind = _thread_kind(snapshot, info.tid, info.name, False)
            reports.append(r.ThreadReport(tid=info.tid, name=info.name, kind=kind, crashed=False))
    return reports


def _python(frame: PythonFrame) -> r.PythonFrame:
    return r.PythonFrame(function=frame.function, file=frame.file, line=frame.line)


def _native(frame: NativeFrame) -> r.NativeFrame:
    return r.NativeFrame(
        image=frame.image,
        offset=hex_addr(frame.offset) if frame.offset is not None else hex_addr(frame.pc) if not frame.image else None,
        build_id=frame.build_id,
        function=frame.function,
        found=frame.found,
    )


def _python_stack(process: Process, crash: Crash | None) -> list[r.PythonFrame] | None:
    if crash is not None:
        return [_python(frame) for frame in crash.python_stack]
    exception = _exception(process)
    return exception.python_stack if exception else None


def _exception(process: Process) -> r.ExceptionReport | None:
    data = process.exception
    if data is None:
        return None
    return r.ExceptionReport(
        type=str(data.get("type") or "") or None,
        message=str(data.get("message") or ""),
        python_stack=[
            r.PythonFrame(function=frame.get("function"), file=frame.get("file"), line=frame.get("line"))
            for frame in objects_in(data, "python_stack")
        ],
    )


def _last_op(snapshot: Snapshot, crash: Crash | None) -> r.LastOp | None:
    """The last operator or range: of the crashed thread if it has one, else of any."""
    phases = {"OP": "begin", "RANGE_BEGIN": "begin", "RANGE_END": "end"}
    events = [event for event in snapshot.events if event.kind in phases]
    own = [event for event in events if crash is not None and event.tid == crash.tid]
    if not (own or events):
        return None
    last = (own or events)[-1]
    return r.LastOp(name=last.data.get("name"), phase=phases[last.kind])
