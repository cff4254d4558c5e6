"""The Python variables that held a storage when the process died, and the autograd nodes that kept it for backward.

The handler reads them from memory that may be half built or damaged, so they are possible holders. A variable holds a
freed storage only if a tensor was created from an address (from_blob).
"""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer.decode.types.snapshot import Crash, Holder, Snapshot, Storage
from pytracer.report import job as r

MOST_HOLDERS = 16
_REGISTERED = Pattern(r"\._(?:parameters|buffers)\['(\w+)'\]")
_KINDS = ("local", "cell", "global", "saved")


class Holders:
    """The possible holders of one process's storages."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        crash = snapshot.crash
        steps = (*crash.steps_done, *crash.steps_faulted, *crash.steps_late) if crash is not None else ()
        self._crash = crash if "HOLDERS" in steps else None
        self._by_base: dict[int, list[Holder]] = {}
        for item in self._crash.holders if self._crash is not None else ():
            self._by_base.setdefault(item.base, []).append(item)

    def report(self, storage: Storage) -> list[r.Holder] | None:
        """Those of a storage, the most relevant first; None if nothing was searched."""
        crash = self._crash
        if crash is None:
            return None
        found: dict[tuple[str, str, object], r.Holder] = {}
        items = self._by_base.get(storage.base, ())
        others = [item for item in items if not _is_wrapper(item)]
        for item in sorted(others or items, key=_by_closeness):
            expression = _REGISTERED.sub(r".\1", item.expression)
            holder = r.Holder(
                expression=expression,
                kind=item.kind,
                python=_frame(item),
                thread=self._thread(crash, item),
                crashed_thread=item.own if item.frame else None,
            )
            place = (item.frame.function, item.frame.file) if item.frame and item.kind != "global" else None
            found.setdefault((item.kind if item.kind == "saved" else "", expression, place), holder)
        return list(found.values())[:MOST_HOLDERS]

    def _thread(self, crash: Crash, item: Holder) -> str | None:
        if item.frame is None:
            return None
        if item.own:
            return crash.thread_name
        info = next((thread for thread in self._snapshot.threads if thread.pthread == item.pthread), None)
        stack = next((thread for thread in crash.threads if thread.pthread == item.pthread), None)
        tid = info.tid if info else stack.tid if stack else None
        return "main" if tid == self._snapshot.pid else stack.name if stack else info.name if info else None


def _is_wrapper(item: Holder) -> bool:
    """A frame of ours between two of the program's: it has what its caller passes on."""
    return item.frame is not None and "/pytracer/record/" in item.frame.file


def _by_closeness(item: Holder) -> tuple[bool, int, int, int]:
    """The crashed thread's before others; saved ones last; plain variables before what is inside of something."""
    steps = item.expression.count(".") + item.expression.count("[") if item.kind != "saved" else 0
    return item.kind == "saved", 0 if item.own or item.kind == "saved" else 1, steps, _KINDS.index(item.kind)


def _frame(item: Holder) -> r.PythonFrame | None:
    frame = item.frame
    return r.PythonFrame(function=frame.function, file=frame.file, line=frame.line) if frame is not None else None
