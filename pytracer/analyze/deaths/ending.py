"""What a process was doing when it ended itself."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer.analyze.platform.signals import SIGTERM
from pytracer.analyze.view import ProcessView, is_handler_frame
from pytracer.blackbox.schema import REQUEST_SIGNAL
from pytracer.decode.types.snapshot import Crash, Process, Snapshot

_GRACE_NS = 120_000_000_000  # of a program that handled SIGINT and goes on, the end is another matter
_LIBC = Pattern(r"(.*/)?libc[.-]")
# By these functions a framework ends healthy processes of its own with a bad status: Ray its actors (2.x, core_worker).
_ORDERLY = ("ray::QuickExit",)


def ending_in_mid_work(ending: Crash | None) -> Crash | None:
    """The stacks of exit() or _exit(), if work was in progress.

    A child of multiprocessing whose work has ended calls os._exit(), too, and has frames of its parent.
    """
    if ending is None or any(
        "/multiprocessing/" in frame.file or "/multiprocess/" in frame.file for frame in ending.python_stack[:1]
    ):
        return None
    return ending


def stopped_at(process: Process) -> Crash | None:
    """The stacks of the last request to end that the process handled, of a collective that failed, or those that the
    launcher took of what still ran when the job had ended. Others, as of `pytracer attach`, show another moment.
    """
    live, outlived = process.snapshot.live, process.outlived_mono_ns
    if live is None or live.signal in (0, SIGTERM):
        return live
    if live.signal == REQUEST_SIGNAL:
        return live if outlived is not None and live.mono_ns >= outlived else None
    ended = process.ended_mono_ns or outlived
    return live if ended is None or ended - live.mono_ns <= _GRACE_NS else None  # SIGINT, which programs survive


def asked_to_end(process: Process) -> Crash | None:
    """The stacks of its end, if it did not crash: of exit() or of a signal, also one that it handled."""
    return process.snapshot.ending or stopped_at(process)


def ended_while_awaited(snapshot: Snapshot) -> bool:
    """Whether a process of a process group that it had not left asked for its own end."""
    return ending_in_mid_work(snapshot.ending) is not None and snapshot.left_mono_ns is None


def orderly_end(view: ProcessView) -> str | None:
    """The function of a framework that ended the process as it ends all its processes, if one did."""
    if view.process.status_kind != "exited" or view.process.snapshot.ending is None:
        return None
    own = (f for f in view.native_stack or () if not is_handler_frame(f) and not _LIBC.match(f.image or ""))
    caller = next(own, None)
    words = (caller.function or "") if caller is not None else ""
    return next((name for name in _ORDERLY if words.partition("(")[0] == name), None)
