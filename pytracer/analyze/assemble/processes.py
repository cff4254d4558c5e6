"""Job -> the parts of the report that are facts: processes, faults, stacks. Conclusions are the rules'
work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone

from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.operands import aimed_at
from pytracer.analyze.assemble.addresses import AddressReports
from pytracer.analyze.assemble.communication import ddp_modules, fsdp_units, recent_collectives
from pytracer.analyze.assemble.guard import guard_notes, guard_report
from pytracer.analyze.assemble.machine_state import add_state
from pytracer.analyze.assemble.parts import (
    bucket_report,
    mapping_report,
    native_frame,
    python_frame,
    storage_report,
    unit_report,
)
from pytracer.analyze.assemble.threads import crashed_thread, thread_reports
from pytracer.analyze.deaths.ending import ending_in_mid_work
from pytracer.analyze.evidence.cuda_graphs import graph_reports, graph_use
from pytracer.analyze.evidence.cuda_streams import current_stream, stream_reports
from pytracer.analyze.evidence.jumps import refused_branch
from pytracer.analyze.evidence.sent_signals import sent_signals
from pytracer.analyze.platform.instruction import (
    Instruction,
    address_expression,
    decode_instruction,
    is_canonical,
    page_fault_access,
)
from pytracer.analyze.platform.signals import SI_KERNEL, SIGABRT, SIGBUS, SIGSEGV, code_name, signal_name
from pytracer.analyze.tensors.origins import lost_storages
from pytracer.analyze.timeline.clock import RunClock
from pytracer.analyze.view import ProcessView
from pytracer.decode.job.identity import launcher_name
from pytracer.decode.types.journal import AnyFact, CppException, Versions, select
from pytracer.decode.types.records import Node
from pytracer.decode.types.snapshot import Crash, Event, Job, Process, Snapshot
from pytracer.report import job as r

_TERMINATE_TO_ABORT_NS = 10_000_000_000


def build_view(index: int, process: Process, clock: RunClock) -> ProcessView:
    """One process with everything about it that needs no judgement."""
    snapshot = process.snapshot
    crash = snapshot.crash if snapshot.crash is not None and not snapshot.crash.repaired else None
    instruction = _instruction(snapshot.arch, crash)
    space = AddressSpace(snapshot)
    place = aimed_at(space, _place(space, crash, instruction), instruction)
    recent = recent_collectives(process, space.uses)
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
        fault=_fault(space, crash, place, instruction, clock),
        thread=crashed_thread(snapshot, crash) if crash else None,
        native_stack=[native_frame(frame) for frame in crash.native_stack] if crash else None,
        threads=thread_reports(snapshot, crash),
        registers={name: hex_addr(value) for name, value in crash.registers.items()} if crash else None,
        step=snapshot.step,
        autograd_node=r.AutogradNode(name=crash.node, sequence_nr=crash.node_sequence_nr, thread=crash.thread_name)
        if crash and crash.node
        else None,
        last_op=_last_op(snapshot.events, crash),
        current_stream=current_stream(snapshot, crash.tid if crash else None),
        last_collective=recent[0] if recent else None,
        recent_collectives=recent,
        ddp=ddp_modules(snapshot, space.uses.hooks.hooks),
        cuda_graphs=graph_reports(space, clock),
        cuda_streams=stream_reports(snapshot, clock),
        fsdp=fsdp_units(space.uses),
        memory=r.Memory(
            max_rss=process.usage.maxrss if process.usage else None,
            cpu_storages_bytes=_live_bytes(snapshot, on_cpu=True),
            cuda_allocated_bytes=_live_bytes(snapshot, on_cpu=False),
        ),
        usage=_usage(process),
        environment=dict(snapshot.environment),
        notes=_notes(snapshot, crash),
        parent_rank=process.parent_rank,
        attempt=process.attempt,
        worker=_worker(snapshot, clock),
        guard=guard_report(snapshot, clock),
        redacted=snapshot.counts.get("redacted"),
    )
    view = ProcessView(index, process, report, space, place, instruction)
    report.exception = _exception(view)
    if crash is not None:
        add_state(report, space, crash, place, clock)
        report.python_stack = [python_frame(frame) for frame in crash.python_stack]
    elif report.exception is not None:
        report.python_stack = report.exception.python_stack
    elif (ending := ending_in_mid_work(snapshot)) is not None:
        report.python_stack = [python_frame(frame) for frame in ending.python_stack]
        report.native_stack = [native_frame(frame) for frame in ending.native_stack]
    return view


def _live_bytes(snapshot: Snapshot, *, on_cpu: bool) -> int | None:
    if snapshot.light or (not on_cpu and not snapshot.segments):
        return None
    return snapshot.storages.live_bytes(on_cpu=on_cpu)


def _worker(snapshot: Snapshot, clock: RunClock) -> r.DataLoaderWorker | None:
    worker = snapshot.worker
    if worker is None:
        return None
    return r.DataLoaderWorker(
        worker_id=worker.worker_id,
        num_workers=worker.num_workers,
        dataset=worker.dataset,
        batch_samples=worker.batch_count,
        batch_indices=worker.batch_indices,
        batch_started=clock.relative(snapshot, worker.batch_mono_ns),
        loading=worker.loading,
    )


def _notes(snapshot: Snapshot, crash: Crash | None) -> list[str]:
    """What the recorder itself could not do."""
    notes = list(dict.fromkeys(note.text for note in snapshot.notes))
    notes += guard_notes(snapshot.guard)
    notes += lost_storages(snapshot.counts)
    for steps, why in ((crash.steps_faulted, "met a fault"), (crash.steps_late, "took too long")) if crash else ():
        notes += [f"the crash handler's step {step} {why}: what it should have written is incomplete" for step in steps]
    if crash is not None and crash.helper_error is not None:
        why = os.strerror(crash.helper_error)
        notes.append(f"the launcher's helper could not take the stacks of other threads by ptrace: {why}")
    return notes


def build_run(job: Job, clock: RunClock) -> r.Run:
    """The run as a whole."""
    snapshots = [process.snapshot for process in job.processes]
    all_versions = (item.versions for item in (*(p.snapshot for p in job.ranks), *snapshots))
    versions = next((item for item in all_versions if item != Versions()), Versions())
    started = datetime.fromtimestamp(clock.start_wall_ns / 1e9, timezone.utc) if clock.start_wall_ns else None
    root = min(snapshots, key=lambda item: item.created_wall_ns, default=None)
    command = job.launcher.command if job.launcher else root.argv if root else ()
    redacted = job.launcher.redacted if job.launcher else root.counts.get("redacted") if root else None
    sizes = [process.world_size for process in job.processes if process.world_size is not None]
    return r.Run(
        id=os.path.basename(os.path.abspath(job.directory)),
        directory=job.directory,
        started=started.isoformat(timespec="milliseconds") if started else None,
        launcher=launcher_name(job.processes),
        command=list(command),
        world_size=max(sizes, default=None),
        hosts=_hosts(snapshots),
        torch=versions.torch,
        cuda=versions.cuda,
        python=versions.python,
        redacted=redacted,
    )


def _hosts(snapshots: Sequence[Snapshot]) -> list[str]:
    """Their names; containers may share one, and are told apart by the boot then."""
    boots = {(item.host, item.boot_id) for item in snapshots}
    names = [host for host, _ in boots]
    return sorted(host if names.count(host) == 1 else f"{host} (boot {boot_id[:8]})" for host, boot_id in boots)


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


def _instruction(arch: str, crash: Crash | None) -> Instruction | None:
    if crash is None or crash.code <= 0 or not arch.startswith("x86"):
        return None
    registers = {name.lower(): value for name, value in crash.registers.items()}
    return decode_instruction(crash.code_bytes, registers, crash.pc, crash.fault_addr)


def _place(space: AddressSpace, crash: Crash | None, instruction: Instruction | None) -> Place | None:
    """The address that was wanted. x86-64 hides non-canonical ones: then the instruction tells, if it can."""
    if crash is None or crash.code <= 0 or crash.signal not in (SIGSEGV, SIGBUS):
        return None
    if not _is_hidden(crash):
        return space.describe(crash.fault_addr)
    addr = _hidden_address(space.snapshot.arch, crash, instruction)
    return space.describe(addr) if addr is not None else Place(0, "non-canonical")


def _is_hidden(crash: Crash) -> bool:
    """A general-protection fault: the kernel gives SI_KERNEL and address 0."""
    return crash.code == SI_KERNEL and crash.fault_addr == 0


def _hidden_address(arch: str, crash: Crash, instruction: Instruction | None) -> int | None:
    jump = refused_branch(arch, crash, instruction)
    if jump is not None:
        return jump.target if jump.target is not None and not is_canonical(jump.target) else None
    return instruction.addr if instruction is not None else None


def _fault(
    space: AddressSpace, crash: Crash | None, place: Place | None, instruction: Instruction | None, clock: RunClock
) -> r.Fault | None:
    if crash is None or place is None:
        return None
    hidden, arch = _is_hidden(crash), space.snapshot.arch
    known = not hidden or _hidden_address(arch, crash, instruction) is not None
    refused = hidden and refused_branch(arch, crash, instruction) is not None
    access = page_fault_access(register(crash, "trapno", "trap"), crash.error_code)
    execute = access == "execute" or refused or (crash.pc == place.addr and known)
    expression, found = address_expression(instruction, crash.registers, place.addr) if not execute else (None, None)
    fault = r.Fault(
        addr=hex_addr(place.addr) if known else None,
        access="execute" if execute else access or (instruction.access if instruction else None),
        size=instruction.size if instruction and not execute else None,
        kind=place.kind,
        storage=storage_report(space, place, clock),
        bucket=bucket_report(place),
        cuda_graph=graph_use(space.snapshot, place, clock),
        fsdp=unit_report(place),
        mapping=mapping_report(crash, place.mapping),
        instruction=instruction.words if instruction and (refused or not execute) else None,
        expression=expression,
        expression_found=found if expression else None,
    )
    if known:
        AddressReports(space, clock).add_surroundings(fault, place, instruction if not execute else None)
    return fault


def _usage(process: Process) -> r.Usage | None:
    used = process.usage
    if used is None:
        return None
    return r.Usage(user_seconds=used.user_seconds, system_seconds=used.system_seconds, major_faults=used.major_faults)


def _signal(process: Process, crash: Crash | None) -> r.Signal | None:
    if crash is not None:
        return r.Signal(
            number=crash.signal,
            name=signal_name(crash.signal),
            code=code_name(crash.signal, crash.code),
            sender_pid=crash.sender_pid if crash.code <= 0 else None,
            sender_command=list(crash.sender_command) or None,
        )
    if process.signal is None:
        return None
    sent = next(reversed(sent_signals(process.snapshot, process.signal)), None)
    if sent is None:
        return r.Signal(number=process.signal, name=signal_name(process.signal))
    return r.Signal(
        number=process.signal,
        name=signal_name(process.signal),
        code=code_name(sent.signal, sent.code),
        sender_pid=sent.sender_pid or None,
        sender_command=list(sent.command) or None,
    )


def _exception(view: ProcessView) -> r.ExceptionReport | None:
    """What was thrown and not caught: the Python exception that began the end, else a C++ one right before abort()."""
    cpp = _cpp_exception(view.process.snapshot.facts, view.crash)
    data = view.process.exception
    if data is None or (cpp is not None and not view.raised):
        return cpp
    return r.ExceptionReport(
        type=data.type or None,
        message=data.message or "",
        python_stack=[
            r.PythonFrame(function=frame.function, file=frame.file, line=frame.line) for frame in data.python_stack
        ],
        language="Python",
    )


def _cpp_exception(facts: Sequence[AnyFact], crash: Crash | None) -> r.ExceptionReport | None:
    """The exception for which std::terminate() was called, of the crashed thread if there is one."""
    if crash is None or crash.signal != SIGABRT:
        return None
    recent = [
        fact for fact in select(facts, CppException) if 0 <= crash.mono_ns - fact.mono_ns <= _TERMINATE_TO_ABORT_NS
    ]
    own = [fact for fact in recent if fact.data.tid == crash.tid]
    last = next(reversed(own or recent), None)
    if last is None or not last.data.type:
        return None
    return r.ExceptionReport(type=last.data.type, message=last.data.what, language="C++")


def _last_op(events: Sequence[Event], crash: Crash | None) -> r.LastOp | None:
    """The last operator or range: of the crashed thread if it has one, else of any."""
    phases = {"OP": "begin", "RANGE_BEGIN": "begin", "RANGE_END": "end"}
    events = [event for event in events if event.kind in phases]
    own = [event for event in events if crash is not None and event.tid == crash.tid]
    if not (own or events):
        return None
    last = (own or events)[-1]
    return r.LastOp(name=last.data.name if isinstance(last.data, Node) else None, phase=phases[last.kind])
