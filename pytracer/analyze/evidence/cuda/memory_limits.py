"""What limited a process's memory on a device, by torch's message: its capacity, a limit, other processes."""

from __future__ import annotations

import ast
from bisect import bisect_left

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import size_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import OutOfMemory

_UNITS = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30}
_SIZE = r"(\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB)"
_CAPACITY = Pattern(rf"total capacity of {_SIZE}|; {_SIZE} total capacity")
_OWN = Pattern(rf"this process has {_SIZE} memory in use")
_OTHER = Pattern(rf"\bProcess (\d+) has {_SIZE} memory in use")
_ALLOWED = Pattern(rf"{_SIZE} allowed")
_SETTER = "set_per_process_memory_fraction"
_MOST = 0.5  # of the device


class DeviceRoom(msgspec.Struct, frozen=True):
    """Sizes are those of the message, rounded to two digits. `others`: the largest of the other processes, its pid."""

    capacity: int | None = None
    allowed: int | None = None
    own: int | None = None
    others: tuple[int, int] | None = None


def device_room(view: ProcessView) -> DeviceRoom:
    """Read from the message of the error."""
    message = (view.exception.message if view.exception is not None else None) or ""
    others = [(_bytes(item[2], item[3]), int(item[1])) for item in _OTHER.finditer(message)]
    nbytes, pid = max(others, default=(0, 0))
    return DeviceRoom(
        _first(_CAPACITY, message), _first(_ALLOWED, message), _first(_OWN, message), (pid, nbytes) if others else None
    )


def _first(expression: Pattern, message: str) -> int | None:
    found = expression.search(message)
    groups = [item for item in found.groups() if item is not None] if found is not None else []
    return _bytes(groups[0], groups[1]) if groups else None


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * (1 << _UNITS[unit]))


def is_own_limit(room: DeviceRoom, last: OutOfMemory) -> bool:
    """Whether the device had room, and only the limit that the process set for itself was reached."""
    return room.allowed is not None and last.free_nbytes >= last.wanted_nbytes


def limit_setter(view: ProcessView) -> str | None:
    """``train.py:16: `torch.cuda.set_per_process_memory_fraction(0.02)` ``, if the program has one such call."""
    snapshot, frames = view.process.snapshot, view.exception_stack_of_program
    found = [
        (file, item)
        for file, tree in program_files(snapshot, frames).items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == _SETTER
    ]
    return f"{short_file(found[0][0])}:{found[0][1].lineno}: `{ast.unparse(found[0][1])}`" if len(found) == 1 else None


def largest_hole(view: ProcessView, last: OutOfMemory) -> int | None:
    """Bytes of the largest piece of torch's memory in which no block lies; None where not all blocks are known."""
    snapshot, device = view.process.snapshot, f"cuda:{last.device}"
    segments = [item for item in snapshot.segments if item.live and item.device == last.device]
    blocks = [item for item in snapshot.storages.on_devices() if item.state == "live" and item.device == device]
    if not segments or len(blocks) != last.live_count or len(segments) != last.segment_count:
        return None
    blocks.sort(key=lambda item: item.base)
    bases, largest = [item.base for item in blocks], 0
    for segment in segments:
        end, at = segment.base + segment.nbytes, segment.base
        for block in blocks[bisect_left(bases, segment.base) : bisect_left(bases, end)]:
            largest, at = max(largest, block.base - at), block.base + block.nbytes
        largest = max(largest, end - at)
    return largest


def taken_by_others(room: DeviceRoom, last: OutOfMemory) -> str | None:
    """What other processes had of the device, where they had most of it, and without them there was room."""
    if room.capacity is None or room.own is None or room.allowed is not None:
        return None
    taken = room.capacity - last.free_nbytes - room.own
    if taken < room.capacity * _MOST or last.wanted_nbytes > taken + last.free_nbytes:
        return None
    words = f"Other processes have {size_words(taken)} of the device's {size_words(room.capacity)}"
    which = room.others
    most = f", process {which[0]} the most ({size_words(which[1])})" if which is not None else ""
    return f"{words}{most}: end them (nvidia-smi lists them), or use another device."
