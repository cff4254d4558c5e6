"""Job -> the report about time: the last steps and collectives of each process, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.matching import state_of
from pytracer.analyze.collectives.receiving import is_in_wait
from pytracer.analyze.collectives.wait_graph import Sent, Waiting
from pytracer.analyze.timeline.clock import ProcessClock
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.records import Step
from pytracer.decode.types.snapshot import Collective, Process
from pytracer.report import job as r

NOT_RECEIVED, RECEIVE_BEGUN = "not received", "receive begun"
MOST_PER_PROCESS = 64
MOST_IN_ALL = 4096
LEAST_PER_PROCESS = 4
MOST_WAITS = 64


def kept_per_process(processes: int) -> int:
    """How many steps and collectives of each process a report has, so that its size stays bounded."""
    return max(LEAST_PER_PROCESS, min(MOST_PER_PROCESS, MOST_IN_ALL // max(processes, 1)))


def sent_states(job: JobView) -> dict[Sent, str]:
    """Of sends that the backend completed, although their receivers did not complete the receive."""
    by_rank = {view.process.rank: view for view in job.views if view.process.role == "rank"}
    waited = {rank for rank in {receiver for _, receiver in job.waiting.receiving} if is_in_wait(by_rank.get(rank))}
    return {
        **dict.fromkeys(job.waiting.not_received, NOT_RECEIVED),
        **{sent: NOT_RECEIVED if rank in waited else RECEIVE_BEGUN for sent, rank in job.waiting.receiving},
    }


def timeline(view: ProcessView, most: int, sent: Mapping[Sent, str]) -> r.Timeline | None:
    """The last `most` steps and collectives of a process; None if it recorded neither.

    `sent`: as by `sent_states`.
    """
    snapshot, clock = view.process.snapshot, view.clock
    steps = [
        r.StepMark(step=event.data.step, time=clock.relative(event.mono_ns))
        for event in snapshot.events
        if isinstance(event.data, Step)
    ]
    collectives = sorted(
        snapshot.collectives, key=lambda item: (item.scheduled_ns or item.started_ns or 0, item.number)
    )
    if not steps and not collectives:
        return None
    return r.Timeline(
        steps=steps[-most:],
        steps_left_out=max(0, len(steps) - most),
        collectives=[_span(view, item, clock, sent) for item in collectives[-most:]],
        collectives_left_out=max(0, len(collectives) - most),
    )


def _span(view: ProcessView, item: Collective, clock: ProcessClock, sent: Mapping[Sent, str]) -> r.CollectiveSpan:
    buffer = view.space.uses.buffer_of(item)
    return r.CollectiveSpan(
        group=item.group,
        op=item.op,
        sequence_nr=item.sequence_nr,
        peer=item.peer,
        state=sent.get(_key(view, item)) or collective_state(view.process, item),
        scheduled=clock.relative(item.scheduled_ns),
        started=clock.relative(item.started_ns),
        completed=clock.relative(item.completed_ns),
        step=item.step,
        what=buffer.what if buffer is not None else None,
        python=place_of(item),
    )


def collective_state(process: Process, item: Collective) -> str:
    """The state of a collective as the report has it."""
    state = state_of(process, item)
    return "queued" if item.progress_unknown and state != "failed" else state


def received_states(view: ProcessView, sent: Mapping[Sent, str]) -> list[r.LastCollective]:
    """The last collectives of a process, with the state of what its receiver did not complete."""
    return [msgspec.structs.replace(item, state=sent.get(_key(view, item)) or item.state) for item in view.collectives]


def _key(view: ProcessView, item: Collective | r.LastCollective) -> Sent:
    """None in place of the rank of what is no send."""
    return (view.process.rank if item.op == "send" else None, item.group, item.peer, item.sequence_nr)


def build_waits(job: JobView) -> list[r.Wait]:
    """The wait-for graph at the end of the job."""
    waiting: Waiting = job.waiting
    by_rank = {view.process.rank: view for view in job.views if view.process.role == "rank"}
    return [
        r.Wait(
            ranks=list(wait.waiters),
            targets=list(wait.targets),
            group=wait.call.group,
            op=wait.call.op,
            sequence_nr=wait.call.sequence_nr,
            since=_since(by_rank.get(wait.waiters[0]), wait.call),
            tags=list(wait.tags) if wait.tags is not None else None,
        )
        for wait in waiting.waits[:MOST_WAITS]
    ]


def _since(view: ProcessView | None, call: Collective) -> int | None:
    """When the first of the waiting ranks called it: the call in the graph is that rank's."""
    return view.clock.relative(call.scheduled_ns) if view is not None else None
