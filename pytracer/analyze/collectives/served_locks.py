"""A rank that waits in a collective inside of a lock, which a remote call of the rank that is missing there needs.

Remote calls (torch.distributed.rpc) run on threads of the rank that is called. One that takes a lock stands until that
rank's own thread lets go of it; if this waits meanwhile for the caller, in a collective, neither goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.collectives.absent_ranks import Absence
from pytracer.analyze.evidence.waits.lock_order import holds, wanted
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, PythonFrame

_REMOTE_CALLS = "/torch/distributed/rpc/"
_SERVES = "_run_function"  # of torch's rpc/internal.py, torch 2.9 to 2.15: what a thread of the called rank runs
_MOST_THREADS = 64


class ServedLock(msgspec.Struct, frozen=True):
    """`at`: the collective's line, `held_at`: its `with`; `served`: where a remote call's thread takes the lock.

    `asks`: the line of the absent rank that waits for a remote call.
    """

    rank: int
    absent: int
    lock: str
    at: PythonFrame
    held_at: int
    served: PythonFrame
    asks: PythonFrame

    @property
    def words(self) -> str:
        """Both sides, as the headline goes on."""
        return (
            f"rank {self.rank} waited for rank {self.absent} at {place_words(self.at)}, inside of `with {self.lock}` "
            f"({line_in(self.at.file, self.held_at, self.at.file)}); rank {self.absent} waited at "
            f"{place_words(self.asks)} for a remote call, whose thread on rank {self.rank} waited for that lock at "
            f"{place_words(self.served)}"
        )

    @property
    def advice(self) -> str:
        """The collective out of the lock."""
        return (
            f"Move the collective of line {self.at.line} out of `with {self.lock}` (line {self.held_at}): before it, "
            "or behind it, with a copy of what the lock protects made inside. No rank may wait for others while it "
            "holds what their remote calls need. A longer time limit does not help."
        )

    @property
    def evidence(self) -> Evidence:
        """How that is known."""
        return Evidence(
            "thread-state",
            f"a thread of rank {self.rank} that serves a remote call was at {place_words(self.served)}, which takes "
            f"`{self.lock}`; the thread in the collective is inside of a `with` of that name",
            rank=self.rank,
            python=self.served,
        )


def served_lock(absence: Absence, views: Sequence[ProcessView]) -> ServedLock | None:
    """None where no rank that waits holds such a lock, or the absent one does not wait for a remote call.

    Args:
        absence: Of one rank that was alive.
        views: Of all processes.
    """
    if absence.fate != "late" or len(absence.views) != 1 or absence.views[0].process.rank is None:
        return None
    asks = _remote_call(absence.views[0])
    if asks is None:
        return None
    for view in views:
        if view.process.rank in absence.wait.waiters:
            found = _held(view, absence.views[0].process.rank, asks)
            if found is not None:
                return found
    return None


def _remote_call(view: ProcessView) -> PythonFrame | None:
    """The line of the program that waits for one, on the main thread."""
    stack = view.python_stack or []
    own = next((place for place, frame in enumerate(stack) if not is_library_file(frame.file)), None)
    if own is None or not any(_REMOTE_CALLS in (frame.file or "") for frame in stack[:own]):
        return None
    return stack[own]


def _held(view: ProcessView, absent: int, asks: PythonFrame) -> ServedLock | None:
    end, main = end_of(view), view.process.snapshot.main_pthread
    stacks = dict(end.python_threads[:_MOST_THREADS]) if end is not None else {}
    own = stacks.get(main, ()) if main is not None else ()
    at = next((frame for frame in own if not is_library_file(frame.file)), None)
    held = holds(view, own)
    if at is None or not held or view.process.rank is None:
        return None
    for pthread, frames in stacks.items():
        if pthread == main or not any(f.function == _SERVES and _REMOTE_CALLS in f.file for f in frames):
            continue
        lock = next(iter(sorted(wanted(view, frames[0]) & held.keys())), None)
        if lock is not None:
            served = python_frame(frames[0])
            return ServedLock(view.process.rank, absent, lock, python_frame(at), held[lock], served, asks)
    return None
