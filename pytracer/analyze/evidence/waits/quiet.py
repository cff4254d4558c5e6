"""For how long a process had recorded nothing when it was ended: no step, no operator, hardly a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from pytracer._text import time_words
from pytracer.analyze.evidence.exceptions.loaders import loading_since
from pytracer.analyze.naming import samples_words
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.records import Step, Text
from pytracer.decode.types.snapshot import Snapshot

LONG_NS = 5_000_000_000
FEW = 32  # operations of storages without a time of their own
_TIMES = 20  # as long as the longest one before
_SHORT_NS = 100_000_000
_AT_ONCE_NS = 10_000_000
_WORK = frozenset({"STEP", "NODE"})
_LEAST = 3  # spans that show what is usual


def timed_records(snapshot: Snapshot, before_ns: int) -> list[int]:
    """When it recorded what has a time of its own, up to a moment."""
    times = [item.mono_ns for item in snapshot.events]
    times += [item.mono_ns for item in snapshot.facts if item.kind != "SIGNAL_SEEN"]
    times += [
        time
        for item in snapshot.collectives
        for time in (item.scheduled_ns, item.started_ns, item.completed_ns)
        if time is not None
    ]
    return [time for time in times if time < before_ns]


def storage_epochs(snapshot: Snapshot, before_ns: int) -> tuple[list[int], int]:
    """When epochs began in which storages were made or freed, and how many of these belong to the last epoch."""
    epochs = snapshot.storage_epochs
    last = max((epoch for epoch, _ in epochs), default=0)
    began = [time for _, time in epochs if time is not None and time < before_ns]
    return began, sum(count for (epoch, _), count in epochs.items() if epoch == last)


class Pause(msgspec.Struct, frozen=True):
    """What a process had not done for a while when it was ended.

    `usual_ns`: the longest of the `spans` before, between two steps or of one batch. `untimed`: storages that it made
    or freed since, at times that are not known. `still_ns`: how long nothing at all was recorded.
    `samples`: those that a DataLoader worker was loading.
    """

    ns: int
    usual_ns: int | None = None
    spans: int = 0
    untimed: int = 0
    still_ns: int = LONG_NS
    samples: str | None = None

    @property
    def still(self) -> bool:
        """Whether it recorded nothing else either, such as an operator."""
        return self.still_ns >= LONG_NS

    @property
    def stood(self) -> bool:
        """Whether what it did before was much quicker: it stood still, or did something else."""
        return self.usual_ns is not None and self.spans >= _LEAST and self.ns >= self.usual_ns * _TIMES

    @property
    def words(self) -> str:
        """After "it": `had made no step for 18.135 s, where steps had taken at most 0.031 s`."""
        lasted = time_words(self.ns)
        if self.samples is not None:
            usual = self.usual_words
            return f"had been loading {self.samples} for {lasted}{usual}"
        tensors = " and no tensor" if not self.untimed else " and next to no tensor" if self.untimed <= FEW else ""
        return f"had made no step{tensors} for {lasted}{self.usual_words}"

    @property
    def usual_words(self) -> str:
        """`, where a batch had taken 12.5 ms at most (the last 20)`; nothing where that was not much quicker."""
        if not self.stood or self.usual_ns is None:
            return ""
        one = "a batch" if self.samples is not None else "a step"
        usual = f"{self.usual_ns / 1e6:.1f} ms" if self.usual_ns < _SHORT_NS else time_words(self.usual_ns)
        return f", where {one} had taken {usual} at most (the last {self.spans})"


def work_times(snapshot: Snapshot, before_ns: int) -> list[int]:
    """When it recorded a step or a part of a backward pass, up to a moment."""
    return [item.mono_ns for item in snapshot.events if item.kind in _WORK and item.mono_ns < before_ns]


def is_idle(view: ProcessView, until_ns: int) -> bool:
    """Whether no step, optimizer's or backward's, is recorded for long; a program without any may only infer."""
    works = work_times(view.process.snapshot, until_ns)
    return until_ns - max(works, default=until_ns - LONG_NS) >= LONG_NS


def pause_of(view: ProcessView, until_ns: int) -> Pause | None:
    """None where it had just made a step or tensors, or too little was recorded to know."""
    snapshot = view.process.snapshot
    if snapshot.light:
        return None
    worker, batch = snapshot.worker, loading_since(view)
    if worker is not None:
        if batch is None or until_ns - batch < LONG_NS:
            return None
        spans = _batches(snapshot, batch)
        usual = max(spans, default=None)
        return Pause(until_ns - batch, usual, len(spans), samples=samples_words(worker))
    since = snapshot.created_mono_ns  # a forked child has entries of its parent's
    before = [time for time in timed_records(snapshot, until_ns) if time >= since]
    steps = [
        item.mono_ns for item in snapshot.events if isinstance(item.data, Step) and since <= item.mono_ns < until_ns
    ]
    if until_ns - max(steps or before, default=since) < LONG_NS:
        return None  # most are at work until the end, and storages are many
    times, untimed = storage_epochs(snapshot, until_ns)
    began = [time for time in times if time >= since]
    if not began:
        return None
    last = max(before + began)
    spans = [after - first for first, after in pairwise(sorted(steps))]
    if steps:
        works = last - max(steps) >= _AT_ONCE_NS
        pause = Pause(
            until_ns - max(steps), max(spans, default=None), len(spans), FEW + 1 if works else untimed, until_ns - last
        )
        return pause if pause.ns >= LONG_NS and (pause.still or pause.stood) else None
    return (
        Pause(until_ns - last, untimed=untimed, still_ns=until_ns - last)
        if _is_long(until_ns - last, untimed)
        else None
    )


def _is_long(quiet_ns: int, untimed: int) -> bool:
    return quiet_ns >= LONG_NS and untimed <= FEW


def _batches(snapshot: Snapshot, before_ns: int) -> Sequence[int]:
    """How long a worker took for each batch that it had done; an empty record ends one."""
    found, began = [], None
    for item in sorted(snapshot.events, key=lambda event: event.mono_ns):
        if item.kind != "SAMPLE" or not isinstance(item.data, Text) or item.mono_ns > before_ns:
            continue
        if item.data.text:
            began = item.mono_ns
        elif began is not None:
            found.append(item.mono_ns - began)
            began = None
    return found
