"""A recorded job as a trace for Perfetto: a group of tracks for each process, arrows between matching collectives.

The rings keep the last records of each thread, so a trace begins where its recording still knows something. A record
that has only a beginning, as of an autograd node, is an instant: how long it took is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from pytracer._started_package import program_name
from pytracer._text import ranks_words
from pytracer.analyze.naming import short_file
from pytracer.analyze.timeline.clock import ProcessClock, RunClock
from pytracer.analyze.timeline.restarts import last_attempt
from pytracer.decode.types.records import Node, Step, Stream, Text
from pytracer.decode.types.snapshot import Collective, Event, Job, Process
from pytracer.export.matched import Call, Meeting, meet
from pytracer.export.storage_total import storage_totals
from pytracer.export.trace_events import Lanes, Trace, TracedProcess, Track
from pytracer.report import job as r


@dataclass
class _Row:
    """A process in the trace, and what is needed to place something on it."""

    traced: TracedProcess
    process: Process
    report: r.ProcessReport
    clock: ProcessClock
    end_ns: int
    lanes: dict[str, Lanes] = field(default_factory=dict)

    def at(self, mono_ns: int) -> int:
        """On the run's clock."""
        return self.clock.relative(mono_ns) or 0

    def lane(self, name: str, begin_ns: int, end_ns: int) -> Track:
        """A track for a slice that may overlap others of its kind."""
        return self.lanes.setdefault(name, Lanes(self.traced, name)).free(begin_ns, end_ns)


def perfetto_trace(job: Job, report: r.Report, *, compressed: bool = False) -> bytes:
    """The trace as a file, of a job that was read in full, and its report."""
    trace, clock, restarted = Trace(), RunClock(job), last_attempt(job) is not None
    rows = [
        _row(trace, clock, process, told, restarted)
        for process, told in zip(job.processes, report.processes or (), strict=True)
    ]
    calls = [call for row in rows for call in _calls(row)]
    by_process = {id(row.process): row for row in rows}
    missing = {group.name: group for group in report.collectives.groups or ()} if report.collectives else {}
    for number, meeting in enumerate(meet(calls), 1):
        for item in meeting.calls:
            track = _draw_call(by_process[id(item.process)], item, meeting, number)
            _draw_wait(track, item, meeting.last, missing.get(item.call.group))
    for row in rows:
        _draw_steps(row)
        _draw_threads(row)
        _draw_end(row)
        _draw_storages(row)
    return trace.encoded(_about(report), compressed=compressed)


def _about(report: r.Report) -> dict[str, object]:
    verdict, run = report.verdict, report.run
    return {
        "run": run.directory if run else None,
        "started": run.started if run else None,
        "verdict": verdict.class_ if verdict else None,
        "confidence": verdict.confidence if verdict else None,
        "summary": verdict.summary if verdict else None,
    }


def _row(trace: Trace, clock: RunClock, process: Process, report: r.ProcessReport, restarted: bool) -> _Row:
    box = process.snapshot
    name = f"rank {process.rank}" if process.role == "rank" else process.role
    if restarted and process.attempt is not None:
        name += f", attempt {process.attempt}"
    program = program_name(box.argv)
    words = f"{name}: {program + ' ' if program else ''}({box.host}, pid {box.pid})"
    order = process.rank if process.role == "rank" and process.rank is not None else 1 << 20
    of = clock.of(box)
    last_ns = process.ended_mono_ns or box.last_mono_ns or box.created_mono_ns
    return _Row(trace.process(words, order), process, report, of, of.relative(last_ns) or 0)


def _calls(row: _Row) -> Iterator[Call]:
    for item in row.process.snapshot.collectives:
        if row.process.rank is None or (entered := item.scheduled_ns or item.started_ns) is None:
            continue
        begin = row.at(entered)
        end = row.at(item.completed_ns) if item.completed_ns else max(row.end_ns, begin)
        yield Call(row.process, row.process.rank, item, begin, end, row.clock.error_ns)


def _draw_call(row: _Row, item: Call, meeting: Meeting, arrow: int) -> Track:
    call, last = item.call, meeting.last
    name = next((g.description for g in row.process.snapshot.groups if g.name == call.group and g.description), None)
    kind = "sends and receives" if call.point_to_point else "collectives"
    track = row.lane(f"{kind} of {name or call.group or 'the group'}", item.begin_ns, item.end_ns)
    waited = last.begin_ns - item.begin_ns if last is not None else None
    track.slice(
        f"{call.op} #{call.sequence_nr}", item.begin_ns, item.end_ns,
        arrow if len(meeting.calls) > 1 else None, item is meeting.calls[0], item is meeting.calls[-1],
        rank=item.rank, group=call.group, sequence_nr=call.sequence_nr, op=call.op, state=call.state,
        entered_last=None if last is None else last is item, last_rank=last.rank if last else None,
        waited_for_last_rank_ns=waited, clock_error_ns=item.error_ns or None,
        dtype=call.dtype, sizes=str(list(call.sizes)), peer=call.peer, root=call.root, line=_line(call), step=call.step,
    )  # fmt: skip
    return track


def _draw_wait(track: Track, item: Call, last: Call | None, group: r.Group | None) -> None:
    """The part of a call that it waited for the last rank, or for those that never came."""
    if last is not None and last is not item:
        track.slice(f"waits for rank {last.rank}", item.begin_ns, min(last.begin_ns, item.end_ns))
    elif group is not None and group.missing_ranks and group.missing_sequence_nr == item.call.sequence_nr:
        track.slice(f"waits for {ranks_words(group.missing_ranks)}", item.begin_ns, item.end_ns)


def _line(call: Collective) -> str | None:
    frame = call.place
    return f"{short_file(frame.file)}:{frame.line} in {frame.function}" if frame is not None else None


def _draw_steps(row: _Row) -> None:
    """Each step lasts until the next one begins."""
    begun = [(row.at(e.mono_ns), e.data.step) for e in row.process.snapshot.events if isinstance(e.data, Step)]
    if not begun:
        return
    track = row.traced.track("steps")
    for (at_ns, step), (until_ns, _) in pairwise([*begun, (max(row.end_ns, begun[-1][0]), 0)]):
        track.slice(f"step {step}", at_ns, until_ns, step=step)


def _draw_threads(row: _Row) -> None:
    events = sorted(row.process.snapshot.events, key=lambda event: event.tid)
    for tid, of_thread in groupby(events, key=lambda event: event.tid):
        _draw_thread(row, tid, [event for event in of_thread if not isinstance(event.data, Collective | Step)])


def _draw_thread(row: _Row, tid: int, events: list[Event]) -> None:
    if not events:
        return
    track = row.traced.thread(tid, events[0].thread)
    opened: list[tuple[str, int]] = []
    for event in events:
        at_ns = row.at(event.mono_ns)
        if isinstance(event.data, Node):
            name = event.data.name
            if event.kind == "RANGE_BEGIN":
                opened.append((name, at_ns))
            elif event.kind != "RANGE_END":
                track.instant(name, at_ns, kind=event.kind.lower(), sequence_nr=event.data.sequence_nr)
            elif opened and opened[-1][0] == name:
                track.slice(name, opened.pop()[1], at_ns)
        elif isinstance(event.data, Text):
            track.instant(event.data.text, at_ns, kind=event.kind.lower())
        elif isinstance(event.data, Stream):
            track.instant("stream", at_ns, device=event.data.device, stream=hex(event.data.stream))
    for name, at_ns in opened:
        track.slice(name, at_ns, max(row.end_ns, at_ns), state="open")


def _draw_storages(row: _Row) -> None:
    """Their bytes, which are nobody's once the process has ended."""
    totals = [(row.at(at_ns), nbytes) for at_ns, nbytes in storage_totals(row.process.snapshot)]
    if totals and row.process.status_kind != "running":
        totals.append((max(row.end_ns, totals[-1][0]), 0))
    for at_ns, nbytes in totals:
        row.traced.counter("CPU storages", at_ns, bytes=nbytes)


def _draw_end(row: _Row) -> None:
    """The death of a process: its signal, exception or status, on the thread that it began in."""
    report, box = row.report, row.process.snapshot
    status = report.status.kind if report.status else None
    if status not in ("signaled", "exception", "vanished"):
        return
    crash = box.crash
    thread = row.traced.thread(crash.tid, crash.thread_name) if crash is not None else row.traced.track("end")
    at_ns = row.at(crash.mono_ns) if crash is not None else row.end_ns
    signal, raised = report.signal, report.exception
    words = (signal.name if signal else None) or (raised.type if raised and raised.type else status)
    thread.instant(
        words, at_ns, of_process=True,
        primary=report.primary, why=report.why, message=raised.message if raised else None,
        address=report.fault.addr if report.fault else None, rank=report.rank, pid=report.pid,
    )  # fmt: skip
