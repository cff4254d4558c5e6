"""How the recorded processes of a machine are related: parents, children, siblings, and which one ended first."""

from __future__ import annotations

from pytracer.analyze.view import JobView, ProcessView

_SERVERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def on_one_machine(view: ProcessView, other: ProcessView) -> bool:
    """Whether their pids and monotonic clocks can be compared: one host, not started anew in between."""
    own, its = view.process.snapshot, other.process.snapshot
    return (own.host, own.boot_id) == (its.host, its.boot_id)


def is_parent(view: ProcessView, child: ProcessView) -> bool:
    """Whether `child` was forked by `view`; a process whose parent ended has another one then."""
    return child.process.snapshot.ppid == view.process.snapshot.pid and on_one_machine(view, child)


def parent_of(job: JobView, view: ProcessView) -> ProcessView | None:
    """None where it was not recorded. Of several that had its number, the last one that was there when it began."""
    began = view.process.snapshot.created_mono_ns
    times = [(item, item.process.snapshot.created_mono_ns) for item in job.views if is_parent(item, view)]
    return max(times, key=lambda pair: (pair[1] <= began, pair[1]), default=(None, 0))[0]


def others_of_machine(job: JobView, view: ProcessView) -> list[ProcessView]:
    """The other recorded processes of its machine."""
    return [item for item in job.views if item.index != view.index and on_one_machine(item, view)]


def children_of(job: JobView, view: ProcessView) -> list[ProcessView]:
    """Those that were recorded."""
    return [item for item in job.views if is_parent(view, item)]


def are_siblings(view: ProcessView, other: ProcessView) -> bool:
    """Whether one process forked both; also of a process and itself."""
    return view.process.snapshot.ppid == other.process.snapshot.ppid and on_one_machine(view, other)


def ended_before(view: ProcessView, other: ProcessView, by_ns: int) -> bool:
    """Whether it ended at least so much earlier; False where either end is unknown."""
    return view.ended_ns is not None and other.ended_ns is not None and view.ended_ns <= other.ended_ns - by_ns


def left_by(view: ProcessView, time_ns: int) -> bool:
    """Whether it had ended with status 0, at that time of its machine's clock at the latest."""
    ended = view.process.ended_mono_ns
    return view.left_well and ended is not None and ended <= time_ns


def is_helper(view: ProcessView) -> bool:
    """Whether it runs nothing of the user's: a program without Python, or a server of multiprocessing's."""
    return is_server(view) or (view.python_frame is None and view.process.snapshot.versions.python is None)


def is_server(view: ProcessView) -> bool:
    """Whether it is a server of multiprocessing's, by its command."""
    return any(name in word for word in view.process.snapshot.argv for name in _SERVERS)
