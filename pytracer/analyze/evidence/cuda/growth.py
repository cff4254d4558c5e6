"""Memory of a device that grew from round to round: blocks of one line and size that stay, and what keeps them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import OutOfMemory
from pytracer.decode.types.storages import PythonFrame

ROUNDS = 8
_LOOKED_AT = 32768  # blocks
_MUCH = 0.3  # of the memory in live blocks
_TENSORS = Pattern(r"(\d+), (\d+) bytes on devices, (\d+) with graph$")
_CONTAINER = Pattern(r"(?:list|dict|deque|defaultdict|OrderedDict) of (\d+)$")
_RECORDED, _GRAPH = "tensors in ", "graph of "
_LARGEST_ITEM = 16  # bytes, of complex128


class Repeated(msgspec.Struct, frozen=True):
    """Live blocks of one size that one line allocated."""

    frame: PythonFrame
    nbytes: int
    count: int

    @property
    def total(self) -> int:
        """Of all."""
        return self.nbytes * self.count


class Keeper(msgspec.Struct, frozen=True):
    """What keeps them. `depth`: its frame among those of the program.

    `graphs`: that many of its tensors have an autograd graph; None: not recorded. `nbytes`: of the tensors themselves.
    `total`: it is a number that sums up, no container.
    """

    name: str
    depth: int
    count: int
    nbytes: int | None
    graphs: int | None
    blocks: tuple[Repeated, ...]
    total: bool = False

    @property
    def is_recorded(self) -> bool:
        """Otherwise it is concluded from its length."""
        return self.graphs is not None

    @property
    def has_graphs(self) -> bool:
        """Whether the graphs, and not the tensors themselves, are what takes the memory."""
        if self.graphs is not None:
            return self.graphs > 0
        return self.nbytes is not None and self.nbytes * 2 < sum(item.total for item in self.blocks)


def keepers(view: ProcessView, at: FailingLine, last: OutOfMemory) -> list[Keeper]:
    """The likeliest first; nothing where no container explains much of the memory."""
    repeated = [*_repeated(view, last)]
    recorded = [*_recorded(at, last, repeated)]
    if recorded or any(name.startswith(_RECORDED) for name in at.values):
        return recorded
    return [*_by_length(at, last, repeated)]


def _repeated(view: ProcessView, last: OutOfMemory) -> Iterator[Repeated]:
    device = f"cuda:{last.device}"
    found: Counter[tuple[PythonFrame, int]] = Counter()
    for block in islice(view.process.snapshot.storages.on_devices(), _LOOKED_AT):
        frame = block.allocated_by.place
        if block.state == "live" and block.device == device and frame is not None and not block.awaited:
            found[frame, block.nbytes] += 1
    for (frame, nbytes), count in found.most_common():
        if count >= ROUNDS:
            yield Repeated(frame, nbytes, count)


def _fitting(repeated: list[Repeated], count: int) -> tuple[Repeated, ...]:
    """Blocks of which there is one for each of its items, or a few; the round that failed may have added more."""
    found = []
    for item in repeated:
        times = round(item.count / count)
        if 1 <= times <= ROUNDS and 0 <= item.count - times * count <= times:
            found.append(item)
    return tuple(sorted(found, key=lambda item: -item.total))


def _recorded(at: FailingLine, last: OutOfMemory, repeated: list[Repeated]) -> Iterator[Keeper]:
    found = []
    for name, value in at.values.items():
        told = _TENSORS.match(value) if name.startswith(_RECORDED) else None
        if told is None:
            continue
        own = name.removeprefix(_RECORDED)
        count, nbytes, graphs = (int(item) for item in told.groups())
        blocks = _fitting(repeated, graphs if graphs else count)
        total = sum(item.total for item in blocks) if graphs else 0
        if max(nbytes, total) >= _MUCH * last.live_nbytes:
            found.append(Keeper(own, _depth(at, own), count, nbytes, graphs, blocks))
    yield from sorted(found, key=lambda item: -max(item.nbytes or 0, sum(block.total for block in item.blocks)))
    if not found and repeated and sum(item.total for item in repeated) >= _MUCH * last.live_nbytes:
        for name in at.values:
            own = name.removeprefix(_GRAPH)
            if name.startswith(_GRAPH):
                yield Keeper(
                    own, _depth(at, own), max(item.count for item in repeated), 0, 1, tuple(repeated), total=True
                )


def _depth(at: FailingLine, name: str) -> int:
    first = name.partition(".")[0]
    if first in at.values or first == "self":
        return 0
    return next((depth for depth, values in at.outer.items() if first in values), 0)


def _by_length(at: FailingLine, last: OutOfMemory, repeated: list[Repeated]) -> Iterator[Keeper]:
    """Containers with as many items as there are blocks, whose first item is a tensor of the device."""
    found = []
    for depth, values in sorted({**at.outer, 0: at.values}.items()):
        for name, value in values.items():
            told = _CONTAINER.match(value)
            count = int(told[1]) if told is not None else 0
            first = values.get(f"{name}[0]", "")
            shape = shape_of(first)
            blocks = _fitting(repeated, count) if count >= ROUNDS else ()
            single = any(item.count - count in (0, 1) for item in blocks)
            much = single and sum(item.total for item in blocks) >= _MUCH * last.live_nbytes
            if much and shape is not None and f" on cuda:{last.device}" in first:
                nbytes = math.prod(shape.sizes) * _LARGEST_ITEM * count
                found.append(Keeper(name, depth, count, nbytes, None, blocks))
    if len(found) == 1:
        yield found[0]


def grown_in_rounds(view: ProcessView, last: OutOfMemory) -> tuple[Repeated, int] | None:
    """The live blocks of one line that are much of the memory, and in how many rounds of a loop they were allocated.

    A round begins where the events of another line of the same function lie between two of them: a model's many layers
    are allocated, and called, without one.
    """
    most = max(_repeated(view, last), key=lambda item: item.total, default=None)
    if most is None or most.total < _MUCH * last.live_nbytes:
        return None
    events = []
    for block in islice(view.process.snapshot.storages.on_devices(), _LOOKED_AT):
        frame = block.allocated_by.place
        if frame is None or (frame.file, frame.function) != (most.frame.file, most.frame.function):
            continue
        own = frame.line == most.frame.line
        if not own or (block.state == "live" and block.nbytes == most.nbytes):
            events.append((block.order[1], own))
    lines = [own for _, own in sorted(events)]
    rounds = sum(own and not before for own, before in zip(lines, [False, *lines], strict=False))
    return (most, rounds) if rounds >= ROUNDS else None
