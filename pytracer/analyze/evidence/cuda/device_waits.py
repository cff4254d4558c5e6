"""The host waits for a device that has not finished: since when nothing moves, and which launches are not known over.

Whether a kernel never ends or is only slow is in no record. What is known: which stream was busy whenever it was asked,
once a second, and when the process last recorded anything. The driver waits by a loop of its own, which is no loop of
the program.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import time_words
from pytracer.analyze.evidence.cuda.cuda_streams import name_of_stream
from pytracer.analyze.evidence.cuda.launches import Launch, pending_launches
from pytracer.analyze.evidence.cuda.spinning_kernels import SpinningKernel, spinning_kernels
from pytracer.analyze.evidence.waits.quiet import FEW, storage_epochs, timed_records
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import CudaStream
from pytracer.decode.types.records import Node
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import Confidence, Evidence

_OPEN = ("scheduled", "started")
_QUIET_NS = 5_000_000_000
_LONG_NS = 30_000_000_000
_LOOKS_NS = 3_000_000_000  # streams are asked once a second
_SHOWN = 3
_LEVEL = " `pytracer run --level ops` records the launches that are not known to be over."
_ENDS = (
    "If the device was only slow, raise the time limit. Else look for a kernel whose loop ends by something that comes "
    "after it: a later operation of its stream, the host after this wait, or data that never has the value. "
    "`cuda-gdb -p PID`, while the process stands, shows the kernel and its line."
)


class DeviceWait(msgspec.Struct, frozen=True):
    """A wait of the host for a device.

    `quiet_ns`: how long before its end the process last recorded anything. `busy`: known streams that were busy at each
    look, up to the end. `first`: of each stream the first launch not known to be over, `by_level`: whether launches are
    recorded, `pending`: names of all those that are not known to be over. `spinning`: kernels in the program's text
    with a loop that does nothing but wait.
    """

    quiet_ns: int
    busy: tuple[CudaStream, ...]
    first: tuple[Launch, ...]
    by_level: bool
    pending: frozenset[str]
    spinning: tuple[SpinningKernel, ...]

    @property
    def confidence(self) -> Confidence:
        """A slow kernel looks the same, for a while."""
        named = self.culprit is not None and bool(self.culprit.launches)
        return "likely" if self.busy and (named or self.quiet_ns >= _LONG_NS) else "possible"

    @property
    def culprit(self) -> SpinningKernel | None:
        """A kernel that waits by its text; where launches are recorded, one of those that are not known to be over.

        Launches of extensions are not recorded at any level.
        """
        found = (item for item in self.spinning if not self.by_level or item.of_extension or item.name in self.pending)
        return next(found, None)

    @property
    def words(self) -> str:
        """For the headline, after the wait."""
        words = ""
        if self.busy:
            item = self.busy[0]
            since, asked = item.since_ns or 0, item.asked_ns or 0
            words = (
                f", while {name_of_stream(item.device, item.stream)} was busy whenever it was asked, for "
                f"{time_words(asked - since)}"
            )
        if self.culprit is not None:
            return f"{words}; {self.culprit.words} may be what does not end"
        if self.first:
            return f"{words}; the first launch that is not known to be over is {self.first[0].words}"
        return words

    @property
    def advice(self) -> str:
        """What to look at."""
        own = f"{self.culprit.advice} " if self.culprit is not None else ""
        level = "" if self.by_level or own else _LEVEL
        return f"{own}{_ENDS}{level}"

    @property
    def evidence(self) -> list[Evidence]:
        """What is known of the device."""
        found = [
            Evidence(
                "cuda-stream",
                f"it had recorded next to nothing for {time_words(self.quiet_ns)}",
                duration_ns=self.quiet_ns,
            )
        ]
        found += [
            Evidence(
                "cuda-launch",
                f"on {name_of_stream(item.device, item.stream)} the first one not known to be over is {item.words}",
                python=item.python,
            )
            for item in self.first[:_SHOWN]
        ]
        return found + [item.evidence for item in self.spinning[:_SHOWN]]


def stands_in_driver(view: ProcessView, end: Crash | None) -> bool:
    """Whether the end found it in the driver, in whichever call, with nothing recorded and a stream busy for long."""
    if end is None or _communicates(view):
        return False
    quiet = _quiet_ns(view, end, by_level=_has_launches(view))
    return quiet is not None and quiet >= _QUIET_NS and bool(_busy(view, end))


def device_wait(view: ProcessView, end: Crash) -> DeviceWait | None:
    """Of a process whose main thread waited for the device at its end.

    None where it had just recorded something, as a program does that makes progress, and where a collective is open
    that runs on the device: its kernel waits for other ranks.
    """
    snapshot = view.process.snapshot
    if _communicates(view):
        return None
    by_level = _has_launches(view)
    quiet = _quiet_ns(view, end, by_level=by_level)
    if quiet is None or quiet < _QUIET_NS:
        return None
    idle = {(item.device, item.stream) for item in snapshot.cuda_streams if item.state == "idle" and _is_new(item, end)}
    launches = [item for item in pending_launches(view).launches if (item.device, item.stream) not in idle]
    names = frozenset(item.operator for item in launches)
    first = _first_of_each(launches)
    return DeviceWait(quiet, tuple(_busy(view, end)), tuple(first), by_level, names, tuple(spinning_kernels(view)))


def _communicates(view: ProcessView) -> bool:
    """Whether a collective is open that has a kernel; gloo's work on the host, on copies."""
    return any(item.state in _OPEN and item.backend != "gloo" for item in view.process.snapshot.collectives)


def _has_launches(view: ProcessView) -> bool:
    return any(isinstance(item.data, Node) and item.data.site is not None for item in view.process.snapshot.events)


def _busy(view: ProcessView, end: Crash) -> list[CudaStream]:
    streams = view.process.snapshot.cuda_streams
    return [item for item in streams if item.state == "busy" and _is_new(item, end) and _is_long(item)]


def _is_new(item: CudaStream, end: Crash) -> bool:
    return item.asked_ns is not None and end.mono_ns - item.asked_ns < _LOOKS_NS


def _is_long(item: CudaStream) -> bool:
    return (item.asked_ns or 0) - (item.since_ns or item.asked_ns or 0) >= _LOOKS_NS


def _first_of_each(launches: Sequence[Launch]) -> list[Launch]:
    """Of each stream, oldest first."""
    found: dict[tuple[int, int], Launch] = {}
    for item in launches:
        found.setdefault((item.device, item.stream), item)
    return list(found.values())


def _quiet_ns(view: ProcessView, end: Crash, *, by_level: bool) -> int | None:
    """Since the last record. None where allocations may have followed it: most have no time of their own."""
    snapshot = view.process.snapshot
    before = timed_records(snapshot, end.mono_ns)
    if before and (by_level or end.mono_ns - max(before) < _QUIET_NS):
        return end.mono_ns - max(before)
    began, untimed = storage_epochs(snapshot, end.mono_ns)
    before += began
    return end.mono_ns - max(before) if before and untimed <= FEW else None
