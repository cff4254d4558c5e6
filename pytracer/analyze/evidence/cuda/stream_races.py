"""Uses of memory that no recorded wait puts in order: one CUDA stream reads what another may still write.

The host counts as one more stream: it must not touch pinned memory while a copy for which it does not wait may be on
its way. Torch's own C++ waits are no records, and the host waits in more calls than are recorded: what is found here is
a possibility.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.cuda.host_memory import HostMemory
from pytracer.analyze.evidence.cuda.launches import Launch, with_launches
from pytracer.analyze.evidence.cuda.operator_results import OperatorResults
from pytracer.analyze.evidence.cuda.shape_only import uses_contents
from pytracer.analyze.evidence.cuda.stream_order import HOST, StreamOrder
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.records import Stream

_COPY = "aten::copy_"
_KEEPS = "record_stream"
# Operators inside of which the host waits for its stream, for a size or the like.
_WAITING = ("bincount", "masked_select", "nonzero", "unique", "_unique")
_BARRIER = "c10d::barrier"


class Race(msgspec.Struct, frozen=True):
    """`later` uses memory at `addr` that `earlier`, on another stream, may not have done with. One of them writes.

    `by_host`: the later one is the host, the memory is pinned, and the earlier one copies from it or to it.
    """

    earlier: Launch
    later: Launch
    addr: int
    writes: bool
    """Whether the earlier one writes it."""
    later_writes: bool
    by_host: bool = False
    on_host: bool = False
    """Whether the memory is the host's."""


def times_allocated(view: ProcessView, race: Race) -> int:
    """How often the line of the later use allocated the memory that it then writes, for its own stream.

    More than once: the tensor of the earlier use had been freed, and the memory was handed out again.
    """
    if race.writes or race.on_host:
        return 0
    lives = (item for item in view.process.snapshot.storages.on_devices() if item.base == race.addr)
    made = [
        item.allocated_by.place
        for item in lives
        if item.stream == race.later.stream and item.device == f"cuda:{race.later.device}"
    ]
    line = _line(race.later)
    return sum(frame is not None and (frame.file, frame.line) == line for frame in made)


@dataclass
class _Uses:
    written: tuple[int, Launch] | None = None  # number on its stream
    read: dict[int, tuple[int, Launch]] = field(default_factory=dict)  # by stream, the last


class _Use(msgspec.Struct, frozen=True):
    addr: int
    writes: bool
    on_host: bool = False


def stream_races(view: ProcessView) -> list[Race]:
    """The last one of each pair of lines of the program, newest first; [] below level ops."""
    order, uses, host = StreamOrder(), dict[int, _Uses](), HostMemory(view)
    waiting: set[int] = set()  # streams for which the host waits in the operator that was recorded last
    found: dict[object, Race] = {}
    results, captures = OperatorResults(view), _capture_ends(view)
    kept: set[int] = set()  # by record_stream(): not used again before its readers are done
    for event, launch in with_launches(view.process.snapshot.events):
        while waiting:
            order.host_waited(waiting.pop())
        if captures and captures[-1] <= event.mono_ns:  # what was captured has not run
            order.device_waited()
            captures.pop()
        if isinstance(event.data, Stream):
            order.note(event.data)
        if launch is None:
            continue
        if _host_waits(launch):
            waiting.add(launch.stream)
        if launch.operator == _KEEPS:
            kept.update(launch.storages)
        if not launch.has_kernel:
            continue
        stream = _stream(launch)
        number = order.launched(stream)
        for use in _uses(launch):
            known = uses.setdefault(use.addr, _Uses())
            written = known.written or (None if use.on_host else results.written(use.addr, launch))
            for race in _against(order, _Uses(written, known.read), launch, use):
                if use.addr in kept and not race.writes and not race.on_host:
                    continue
                if race.on_host and not host.is_one_tensor(use.addr, race.earlier, race.later):
                    continue
                found[_line(race.earlier), _line(race.later)] = race
            if use.on_host and not launch.asynchronous:
                continue
            if use.writes:
                uses[use.addr] = _Uses(written=(number, launch))
            else:
                known.read[stream] = number, launch
        results.launched(number, launch)
    return sorted(found.values(), key=lambda race: race.later.mono_ns, reverse=True)


def _capture_ends(view: ProcessView) -> list[int]:
    """Of CUDA graphs, the first one last. Before a capture begins, torch waits for the device."""
    graphs = view.process.snapshot.cuda_graphs
    return sorted((item.captured_ns for item in graphs if item.captured_ns is not None), reverse=True)


def _host_waits(launch: Launch) -> bool:
    """Whether it is over, with all before it on its stream, when the host goes on.

    A copy between host and device has one device address.
    """
    if launch.name == _COPY:
        return len(launch.storages) == 1 and not launch.asynchronous
    blocks = launch.operator.startswith(_WAITING) or launch.name == _BARRIER
    return launch.waits or (blocks and bool(launch.storages))


def _stream(launch: Launch) -> int:
    return HOST if launch.is_on_host else launch.stream


def _uses(launch: Launch) -> Iterator[_Use]:
    """An in-place operator writes its first operand. Of several operands on devices and hosts only copies are followed.

    A copy from a device reads the device's memory.
    """
    in_place = launch.operator.endswith("_")
    for at, addr in enumerate(launch.storages):
        yield _Use(addr, at == 0 and in_place and not launch.first_on_host)
    if launch.name != _COPY and (not launch.is_on_host or not uses_contents(launch)):
        return
    for at, addr in enumerate(launch.host_storages):
        yield _Use(addr, at == 0 and in_place and launch.first_on_host, on_host=True)


def _against(order: StreamOrder, uses: _Uses, later: Launch, use: _Use) -> list[Race]:
    before = [(*uses.written, True)] if uses.written is not None else []
    if use.writes:
        before += [(*item, False) for item in uses.read.values()]
    stream, by_host = _stream(later), later.is_on_host
    return [
        Race(earlier, later, use.addr, wrote, use.writes, by_host, use.on_host)
        for number, earlier, wrote in before
        if not order.is_over(number, _stream(earlier), stream)
        and (by_host or earlier.device == later.device)
        and _is_of_program(earlier)
        and _is_of_program(later)
    ]


def _is_of_program(launch: Launch) -> bool:
    """The streams of libraries and of backward passes wait for each other in C++."""
    own = launch.node is None and not launch.inside
    return own and launch.python is not None and not is_library_file(launch.python.file)


def _line(launch: Launch) -> object:
    return (launch.python.file, launch.python.line) if launch.python else None
