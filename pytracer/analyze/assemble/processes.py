"""ProcessView and its judgement -> one process of the report."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytracer._text import hex_addr
from pytracer.analyze.assemble.communication import ddp_modules, fsdp_units
from pytracer.analyze.assemble.guard import guard_notes
from pytracer.analyze.assemble.machine_state import with_machine_state
from pytracer.analyze.assemble.neighborhood import neighborhood
from pytracer.analyze.assemble.threads import Threads
from pytracer.analyze.assemble.view import end_of
from pytracer.analyze.evidence.cuda.cuda_graphs import graph_reports
from pytracer.analyze.evidence.cuda.cuda_streams import stream_reports
from pytracer.analyze.evidence.operators.line_tensors import are_operands_known
from pytracer.analyze.evidence.operators.operator_report import operator_report
from pytracer.analyze.tensors.origins import lost_storages
from pytracer.analyze.timeline.clock import ProcessClock
from pytracer.analyze.view import Death, ProcessView
from pytracer.analyze.work import Task
from pytracer.decode.types.records import Node
from pytracer.decode.types.snapshot import Crash, Event, Process, Worker
from pytracer.report import job as r


def process_report(
    view: ProcessView,
    *,
    death: Death | None = None,
    gpu_core: r.GpuCoreReport | None = None,
    timeline: r.Timeline | None = None,
    collectives: Sequence[r.LastCollective] | None = None,
) -> r.ProcessReport:
    """Everything that the report has about one process.

    Args:
        view: its facts.
        death: how its end was judged; None for a process whose end does not matter.
        gpu_core: what a core dump of a device shows about it.
        timeline: its last steps and collectives.
        collectives: the last of each operation, the newest first, by what is known of all ranks.
    """
    process, snapshot, crash, clock = view.process, view.process.snapshot, view.crash, view.clock
    uses = view.space.uses
    last = list(collectives if collectives is not None else view.collectives)
    report = r.ProcessReport(
        pid=snapshot.pid,
        ppid=snapshot.ppid,
        host=snapshot.host,
        rank=process.rank,
        local_rank=process.local_rank,
        world_size=process.world_size,
        role=process.role,
        name=view.work.name if view.work is not None else None,
        name_found=view.work.found if view.work is not None else None,
        doing=_doing(view.task, clock),
        command=list(snapshot.argv),
        started=clock.relative(snapshot.created_mono_ns),
        ended=view.ended_ns,
        raised=clock.relative(process.exception_mono_ns) if view.raised else None,
        status=r.Status(
            kind=process.status_kind,
            exit_code=process.exit_code,
            signal=process.signal,
            reported_by=process.reported_by,
        ),
        primary=None if death is None or death.by_finding else death.primary,
        why=death.why if death is not None else None,
        why_kind=death.kind.value if death is not None and death.kind is not None else None,
        signal=view.signal,
        fault=view.fault,
        neighborhood=neighborhood(view),
        timeline=timeline,
        thread=view.thread,
        parallel_region_opener=view.region_opener,
        python_stack=view.python_stack,
        native_stack=view.native_stack,
        threads=Threads(snapshot, crash, end_of(process, crash, view.exception)).reports(),
        registers={name: hex_addr(value) for name, value in crash.registers.items()} if crash else None,
        exception=view.exception,
        thread_exceptions=list(view.thread_exceptions) or None,
        exit_request=view.exit_request,
        handled_exception=view.handled,
        step=snapshot.step,
        autograd_node=r.AutogradNode(name=crash.node, sequence_nr=crash.node_sequence_nr, thread=crash.thread_name)
        if crash and crash.node
        else None,
        last_op=_last_op(snapshot.events, crash),
        operator=operator_report(view),
        current_stream=view.current_stream,
        last_collective=last[0] if last else None,
        recent_collectives=last,
        ddp=ddp_modules(uses),
        cuda_graphs=graph_reports(view.space, clock),
        cuda_streams=stream_reports(snapshot.cuda_streams, clock),
        fsdp=fsdp_units(uses),
        memory=r.Memory(
            max_rss=process.usage.maxrss if process.usage else None,
            cpu_storages_bytes=snapshot.live_bytes(on_cpu=True),
            cuda_allocated_bytes=snapshot.live_bytes(on_cpu=False),
        ),
        usage=_usage(process),
        environment=dict(snapshot.environment),
        notes=_notes(view),
        stack_cycle=view.stack_cycle,
        parent_rank=process.parent_rank,
        attempt=process.attempt,
        worker=_worker(snapshot.worker, clock),
        guard=view.guard,
        gpu_core=gpu_core,
        redacted=snapshot.counts.get("redacted"),
    )
    return with_machine_state(report, crash, view.place, view.storages) if crash is not None else report


def _doing(task: Task | None, clock: ProcessClock) -> r.Doing | None:
    return None if task is None else r.Doing(kind=task.kind, text=task.text, since=clock.relative(task.mono_ns))


def _worker(worker: Worker | None, clock: ProcessClock) -> r.DataLoaderWorker | None:
    if worker is None:
        return None
    return r.DataLoaderWorker(
        worker_id=worker.worker_id,
        num_workers=worker.num_workers,
        dataset=worker.dataset,
        batch_samples=worker.batch_count,
        batch_indices=worker.batch_indices,
        batch_started=clock.relative(worker.batch_mono_ns),
        loading=worker.loading,
    )


def _notes(view: ProcessView) -> list[str]:
    """What the recorder itself could not do."""
    snapshot, crash = view.process.snapshot, view.crash
    notes = list(dict.fromkeys(note.text for note in snapshot.notes))
    notes += guard_notes(snapshot.guard)
    notes += lost_storages(snapshot.counts)
    for steps, why in ((crash.steps_faulted, "met a fault"), (crash.steps_late, "took too long")) if crash else ():
        notes += [f"the crash handler's step {step} {why}: what it should have written is incomplete" for step in steps]
    if crash is not None and crash.arguments_truncated and not are_operands_known(view):
        notes.append("the crash handler's search for the operator's tensors reached a limit: some may be missing")
    if crash is not None and crash.helper_error is not None:
        why = os.strerror(crash.helper_error)
        notes.append(f"the launcher's helper could not take the stacks of other threads by ptrace: {why}")
    return notes


def _usage(process: Process) -> r.Usage | None:
    used = process.usage
    if used is None:
        return None
    return r.Usage(user_seconds=used.user_seconds, system_seconds=used.system_seconds, major_faults=used.major_faults)


def _last_op(events: Sequence[Event], crash: Crash | None) -> r.LastOp | None:
    """The last operator or range: of the crashed thread if it has one, else of any."""
    phases = {"OP": "begin", "RANGE_BEGIN": "begin", "RANGE_END": "end"}
    events = [event for event in events if event.kind in phases]
    own = [event for event in events if crash is not None and event.tid == crash.tid]
    if not (own or events):
        return None
    last = (own or events)[-1]
    return r.LastOp(name=last.data.name if isinstance(last.data, Node) else None, phase=phases[last.kind])
