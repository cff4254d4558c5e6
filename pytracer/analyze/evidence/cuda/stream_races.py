"""Uses of device memory that no recorded wait puts in order: one stream reads what another may still write.

Work of one stream runs in order. Between streams only waits make an order: an event that one records and another waits
for, a stream that waits for another, or the host, which launches nothing before its wait is over. Torch's own C++ waits
are no records, and the host waits in more calls than are recorded: what is found here is a possibility.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.cuda.launches import Launch, with_launches
from pytracer.analyze.view import ProcessView
from pytracer.blackbox.numbers import StreamAction
from pytracer.decode.types.records import Stream

_COPY = "aten::copy_"

Clock = dict[int, int]
"""Stream -> how many of its launches are known to be over or ordered before."""


@dataclass(frozen=True)
class Race:
    """`later` uses memory at `addr` that `earlier`, on another stream, may not have done with. One of them writes."""

    earlier: Launch
    later: Launch
    addr: int
    writes: bool
    """Whether the earlier one writes it."""


@dataclass
class _Uses:
    written: tuple[int, Launch] | None = None  # number on its stream
    read: dict[int, tuple[int, Launch]] = field(default_factory=dict)  # by stream, the last


class _Order:
    """What is ordered before what, from the records so far."""

    def __init__(self) -> None:
        self.count: Clock = {}
        self._before: dict[int, Clock] = {}
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}

    def launched(self, stream: int) -> int:
        """The number of one more launch."""
        self.count[stream] = self.count.get(stream, 0) + 1
        return self.count[stream]

    def knows(self, stream: int, other: int) -> int:
        """Up to which launch of another stream everything is over before the next launch of this one runs."""
        return max(self._before.get(stream, {}).get(other, 0), self._host.get(other, 0))

    def note(self, record: Stream) -> None:
        """A wait, or the recording of an event."""
        if record.action == StreamAction.EVENT_RECORDED:
            self._events[record.event] = self._upto(record.stream)
        elif record.action == StreamAction.WAITS_FOR_EVENT:
            _merge(self._before.setdefault(record.stream, {}), self._events.get(record.event) or self._everything())
        elif record.action == StreamAction.WAITS_FOR_STREAM:
            _merge(self._before.setdefault(record.stream, {}), self._upto(record.other_stream))
        elif record.action in (StreamAction.HOST_WAITED, StreamAction.HOST_WAITED_FOR_DEVICE):
            self.host_waited(record.stream if record.action == StreamAction.HOST_WAITED and not record.event else None)

    def host_waited(self, stream: int | None) -> None:
        """For a stream, or for all that there is: None."""
        _merge(self._host, self._everything() if stream is None else self._upto(stream))

    def _upto(self, stream: int) -> Clock:
        return {**self._before.get(stream, {}), stream: self.count.get(stream, 0)}

    def _everything(self) -> Clock:
        return dict(self.count)


def _merge(into: Clock, more: Clock) -> None:
    for stream, number in more.items():
        into[stream] = max(into.get(stream, 0), number)


def stream_races(view: ProcessView) -> list[Race]:
    """The last one of each pair of lines of the program, newest first; [] below level ops."""
    order, uses = _Order(), dict[int, _Uses]()
    waiting: dict[int, int] = {}
    found: dict[object, Race] = {}
    for event, launch in with_launches(view.process.snapshot.events):
        if event.tid in waiting:
            order.host_waited(waiting.pop(event.tid))
        if isinstance(event.data, Stream):
            order.note(event.data)
        if launch is None:
            continue
        # A copy between host and device has one device address: the host may wait for it.
        if launch.waits or (launch.name == _COPY and len(launch.storages) == 1):
            waiting[event.tid] = launch.stream
        if not launch.has_kernel:
            continue
        number = order.launched(launch.stream)
        for at, addr in enumerate(launch.storages):
            writes = at == 0 and launch.operator.endswith("_")
            for race in _against(order, uses.setdefault(addr, _Uses()), launch, addr, writes):
                found[_line(race.earlier), _line(race.later)] = race
            if writes:
                uses[addr] = _Uses(written=(number, launch))
            else:
                uses[addr].read[launch.stream] = number, launch
    return sorted(found.values(), key=lambda race: race.later.mono_ns, reverse=True)


def _against(order: _Order, uses: _Uses, later: Launch, addr: int, writes: bool) -> list[Race]:
    before = [(*uses.written, True)] if uses.written is not None else []
    if writes:
        before += [(*item, False) for item in uses.read.values()]
    return [
        Race(earlier, later, addr, wrote)
        for number, earlier, wrote in before
        if earlier.stream != later.stream
        and earlier.device == later.device
        and order.knows(later.stream, earlier.stream) < number
        and _is_of_program(earlier)
        and _is_of_program(later)
    ]


def _is_of_program(launch: Launch) -> bool:
    """The streams of libraries and of backward passes wait for each other in C++."""
    return launch.node is None and launch.python is not None and not is_library_file(launch.python.file)


def _line(launch: Launch) -> object:
    return (launch.python.file, launch.python.line) if launch.python else None
