"""Which line wrote a block of a device that no in-place operator wrote: the one that allocated it, for its result.

A block has no exact time, so this is followed only where all blocks at its address, up to its use, come from one line
on one CUDA stream, and nothing has waited for any recorded launch of that line.
"""

from __future__ import annotations

from pytracer.analyze.evidence.cuda.launches import Launch
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.storages import DEFAULT_POOL, Storage

_RECENT_NS = 1_000_000_000  # what was launched longer ago is over, most likely

_Key = tuple[str, int, str, int | None]  # device, stream, file, line


class OperatorResults:
    """Of one process, from its launches so far."""

    def __init__(self, view: ProcessView) -> None:
        self._blocks: dict[int, list[Storage]] = {}
        for block in view.process.snapshot.storages.on_devices():
            self._blocks.setdefault(block.base, []).append(block)
        self._first: dict[_Key, int] = {}
        self._last: dict[_Key, Launch] = {}

    def launched(self, number: int, launch: Launch) -> None:
        """One more."""
        if launch.python is not None and launch.node is None:
            frame = launch.python
            key = f"cuda:{launch.device}", launch.stream, frame.file or "", frame.line
            self._first.setdefault(key, number)
            self._last[key] = launch

    def written(self, addr: int, used: Launch) -> tuple[int, Launch] | None:
        """The number of the first launch of the line, on its stream, and its last launch."""
        blocks = [item for item in self._blocks.get(addr, ()) if (item.allocated.mono_ns or 0) <= used.mono_ns]
        keys = {_key(item) for item in blocks}
        key = keys.pop() if len(keys) == 1 else None
        launch = self._last.get(key) if key is not None else None
        if key is None or launch is None or used.mono_ns - launch.mono_ns > _RECENT_NS:
            return None
        return self._first[key], launch


def _key(block: Storage) -> _Key | None:
    """None for one of a CUDA graph, or of a backward pass."""
    frame = block.allocated_by.place
    if frame is None or block.allocated_by.node is not None or block.stream is None or block.pool != DEFAULT_POOL:
        return None
    return block.device, block.stream, frame.file, frame.line
