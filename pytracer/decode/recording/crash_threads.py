"""The stacks of the threads that did not crash, as the launcher's helper or a signal took them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.schema import Region, StackState, ThreadsHow
from pytracer.decode.recording.crash_images import FOUND, Places
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.types.snapshot import FrameFound, NativeFrame, ThreadStack, ThreadStackState

_HEAD, _RING, _SLOTS = schema.THREAD_HEAD_FRAMES, schema.THREAD_TAIL_FRAMES, schema.THREAD_STACK_FRAMES
_HOW: dict[int, str] = {ThreadsHow.HELPER: "helper", ThreadsHow.SIGNAL: "signal"}
_STATES: dict[int, ThreadStackState] = {
    StackState.LISTED: "listed",
    StackState.ASKED: "asked",
    StackState.WALKING: "walking",
    StackState.DONE: "done",
    StackState.FAULTED: "faulted",
}
_T = TypeVar("_T")


def threads_how(head: raw.CrashHeader) -> str | None:
    """How the stacks were taken: "helper" (ptrace), "signal", or None."""
    return _HOW.get(head.threads_how)


def read_threads(box: BoxFile, head: raw.CrashHeader, places: Places) -> Iterable[ThreadStack]:
    """All threads in the order in which they were listed; damaged counts only shorten stacks."""
    content = box.content(box.region(Region.THREAD_FRAMES))
    frames: dict[tuple[int, str], NativeFrame] = {}  # most threads wait in the same few places
    items = box.items(Region.THREAD_STACKS, raw.ThreadStack, head.thread_stack_count)
    for index, item in enumerate(items):
        if item.tid in (0, head.tid):
            continue
        total, count = item.frame_total, min(item.frame_count, _HEAD)
        counters = _counters(content, index)
        tail = in_order(counters[_HEAD : _HEAD + min(item.frame_tail, _RING)], total - _HEAD, _RING)
        shown = counters[:count] + tail
        depths = [*range(count), *range(total - len(tail), total)]
        found = [_found(depth, item.guessed_from, item.guessed_how) for depth in depths[: len(shown)]]
        yield ThreadStack(
            tid=item.tid,
            name=item.name,
            pthread=item.pthread or None,
            state=_STATES.get(item.state, "listed"),
            native_stack=tuple(_frame(pc, how, places, frames) for pc, how in zip(shown, found, strict=True)),
            native_total=total,
            gap=max(0, total - len(shown)),
            tail=len(tail),
            complete=bool(item.complete),
            syscall=item.syscall if item.syscall >= 0 else None,
            stopped=bool(item.stopped),
        )


def _counters(content: bytes, index: int) -> list[int]:
    """The slots of one thread; fewer where the region was cut off."""
    part = content[index * _SLOTS * 8 : (index + 1) * _SLOTS * 8]
    return list(struct.unpack_from(f"<{len(part) // 8}Q", part))


def in_order(ring: Sequence[_T], written: int, size: int) -> list[_T]:
    """The items of a ring, oldest first; `written` counts all that were ever put into it."""
    oldest = written % size if len(ring) == size else 0
    return [*ring[oldest:], *ring[:oldest]]


def _found(depth: int, guessed_from: int, guessed_how: int) -> FrameFound:
    if guessed_how and depth >= guessed_from:
        return FOUND.get(guessed_how, "unknown")
    return FOUND[1] if depth else FOUND[0]


def _frame(pc: int, found: FrameFound, places: Places, known: dict[tuple[int, str], NativeFrame]) -> NativeFrame:
    if (pc, found) not in known:
        known[pc, found] = places.frame(pc, found)
    return known[pc, found]
