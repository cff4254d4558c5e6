"""What an exception of torch's DataLoader reports, and what its workers were doing."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer._text import time_words
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words, samples_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_FILE = "/torch/utils/data/dataloader.py"
_TIMED_OUT = Pattern(r"DataLoader timed out after (\d+) seconds?")  # torch 2.13, utils/data/dataloader.py


def loader_timeout(view: ProcessView) -> str | None:
    """The seconds after which a process gave up waiting for its workers, if that ended it."""
    match = _TIMED_OUT.search((view.exception.message if view.exception else None) or "")
    return match[1] if match is not None and view.raised else None


def loading_workers(job: JobView, view: ProcessView, until_ns: int | None) -> list[ProcessView]:
    """The DataLoader workers of a process that were inside a batch at a moment of its clock, the longest first."""
    workers = [
        item
        for item in children_of(job, view)
        if (since := loading_since(item)) is not None and (until_ns is None or since < until_ns)
    ]
    return sorted(workers, key=lambda item: loading_since(item) or 0)


def loading_since(view: ProcessView) -> int | None:
    """When a DataLoader worker began the batch that it was loading at its end."""
    worker = view.process.snapshot.worker
    return worker.batch_mono_ns if worker is not None and worker.loading else None


def waits_for_loader(view: ProcessView) -> bool:
    """Whether the process was inside torch's DataLoader when it ended: its main thread, or the one of the signal."""
    ending = asked_to_end(view.process)
    threads = ending.python_threads if ending is not None and not view.raised else ()
    files = [frame.file or "" for frame in view.python_stack or ()]
    return any(file.endswith(_FILE) for file in [*files, *(frame.file for _, stack in threads for frame in stack)])


def loading_words(view: ProcessView, until_ns: int | None) -> str:
    """`DataLoader worker 0 (pid 8) had been loading samples 20-24 for 3.1 s`."""
    worker, since = view.process.snapshot.worker, loading_since(view)
    lasted = f" for {time_words(until_ns - since)}" if until_ns is not None and since is not None else ""
    return f"{name_words([view])} had been loading {samples_words(worker) if worker else 'a batch'}{lasted}"


def loading_evidence(view: ProcessView, until_ns: int | None) -> Evidence:
    """The same as evidence."""
    worker, since = view.process.snapshot.worker, loading_since(view)
    return Evidence(
        "data-loader",
        loading_words(view, until_ns),
        pid=view.process.snapshot.pid,
        count=worker.batch_count if worker else None,
        text=worker.batch_indices if worker else None,
        time=view.clock.relative(since),
        duration_ns=until_ns - since if until_ns is not None and since is not None else None,
    )


def slow_worker(job: JobView, view: ProcessView, waited_ns: int) -> ProcessView | None:
    """The worker for which a process still waited when it ended: inside a batch for most of the others' wait."""
    ended = view.process.ended_mono_ns
    workers: Sequence[ProcessView] = loading_workers(job, view, ended) if waits_for_loader(view) else ()
    first = next(iter(workers), None)
    if first is None or ended is None or (ended - (loading_since(first) or ended)) * 2 < waited_ns:
        return None
    return first
