"""A trace in the JSON of Chrome's Trace Event Format, which Perfetto's UI and its trace_processor open."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytracer.render.json import json_text

Argument = object
Arguments = Mapping[str, Argument]
_OWN_TRACKS = 1 << 23  # above every kernel thread id: tracks that are no threads


@dataclass
class Track:
    """One row. Slices on it nest or follow one another; `lane` finds one where a new slice does neither."""

    trace: Trace
    pid: int
    tid: int

    def slice(
        self,
        name: str,
        begin_ns: int,
        end_ns: int,
        arrow: int | None = None,
        first: bool = False,
        last: bool = False,
        **arguments: Argument,
    ) -> None:
        """Something that lasted. Slices with the same `arrow` are joined in their order, from the first to the last."""
        ends = {} if arrow is None else {"bind_id": hex(arrow), "flow_in": not first, "flow_out": not last}
        duration = max(end_ns - begin_ns, 0) / 1000
        self.trace.add("X", name, begin_ns, self, arguments, dur=duration, **ends)

    def instant(self, name: str, at_ns: int, *, of_process: bool = False, **arguments: Argument) -> None:
        """Something that happened: on this track, or to the whole process."""
        self.trace.add("i", name, at_ns, self, arguments, s="p" if of_process else "t")


@dataclass
class Lanes:
    """Tracks of one name. A slice that overlaps those of all tracks opens another one."""

    process: TracedProcess
    name: str
    rows: list[tuple[Track, int]] = field(default_factory=list)  # with the end of the last slice

    def free(self, begin_ns: int, end_ns: int) -> Track:
        """The first track that is free from `begin_ns` on. Slices are asked for in the order of their beginnings."""
        for number, (track, until) in enumerate(self.rows):
            if until <= begin_ns:
                self.rows[number] = (track, end_ns)
                return track
        track = self.process.track(self.name if not self.rows else f"{self.name} ({len(self.rows) + 1})")
        self.rows.append((track, end_ns))
        return track


class TracedProcess:
    """The tracks of one process. Its number in the trace is no pid: those of several hosts may be equal."""

    def __init__(self, trace: Trace, number: int, name: str, order: int) -> None:
        self._trace, self.number, self._own = trace, number, 0
        trace.name("process_name", number, 0, name=name)
        trace.name("process_sort_index", number, 0, sort_index=order)

    def thread(self, tid: int, name: str) -> Track:
        """The track of a thread."""
        self._trace.name("thread_name", self.number, tid, name=name)
        return Track(self._trace, self.number, tid)

    def track(self, name: str) -> Track:
        """A track above those of the threads."""
        self._own += 1
        track = self.thread(_OWN_TRACKS + self.number * 4096 + self._own, name)
        self._trace.name("thread_sort_index", self.number, track.tid, sort_index=self._own - 4096)
        return track

    def counter(self, name: str, at_ns: int, **values: int) -> None:
        """A number that changed."""
        self._trace.add("C", name, at_ns, Track(self._trace, self.number, 0), values)


class Trace:
    """All events, in any order. Times are ns; the first event may be before 0."""

    def __init__(self) -> None:
        self._events: list[tuple[int, dict[str, object]]] = []
        self._named: list[dict[str, object]] = []
        self._processes = 0

    def process(self, name: str, order: int) -> TracedProcess:
        """One more process."""
        self._processes += 1
        return TracedProcess(self, self._processes, name, order)

    def name(self, what: str, pid: int, tid: int, **values: object) -> None:
        """A name or an order: "process_name", "thread_sort_index"."""
        self._named.append({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": values})

    def add(self, phase: str, name: str, at_ns: int, track: Track, arguments: Arguments, **more: object) -> None:
        """One event; arguments that are None are left out."""
        event: dict[str, object] = {"ph": phase, "name": name, "pid": track.pid, "tid": track.tid, **more}
        if known := {key: value for key, value in arguments.items() if value is not None}:
            event["args"] = known
        self._events.append((at_ns, event))

    def encoded(self, about: Mapping[str, object], *, compressed: bool = False) -> bytes:
        """The file. `about` becomes the trace's metadata."""
        self._events.sort(key=lambda item: item[0])
        zero_ns = min(self._events[0][0], 0) if self._events else 0
        events = [{**event, "ts": (at_ns - zero_ns) / 1000} for at_ns, event in self._events]
        data = json_text({"traceEvents": self._named + events, "otherData": about}).encode("ascii")
        return gzip.compress(data, 6, mtime=0) if compressed else data
