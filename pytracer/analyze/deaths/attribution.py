"""Which deaths only show that something was wrong between ranks.

A lost connection, a time-out, gloo's abort over a message of the wrong size and the watchdog's abort are noticed by
ranks that need have done nothing wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.evidence.cuda.cuda_errors import cuda_error
from pytracer.analyze.evidence.ends.sent_signals import sent_signals
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.view import Death, JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Evidence

_WATCHDOG = Pattern(r"watchdog|collective operation timeout|ncclCommWatchdog|heartbeat monitor", re.IGNORECASE)
# torch 2.13, ProcessGroupWrapper.cpp
_COMPARED = "Detected mismatch between collectives on ranks."
_SIZES = Pattern(r"(\d+) vs (\d+)")


def abort_words(view: ProcessView) -> str | None:
    """`gloo::EnforceNotMet (668 vs 8 bytes)`: a C++ exception of a communication library that ended the process."""
    exception = view.exception
    if exception is None or exception.language != "C++" or not (exception.type or "").startswith(("gloo::", "c10d::")):
        return None
    sizes = _SIZES.search(exception.message or "")
    return f"{exception.type}{f' ({sizes[1]} vs {sizes[2]} bytes)' if sizes else ''}"


def is_watchdog_abort(view: ProcessView) -> bool:
    """Whether the watchdog of NCCL ended the process because a collective took too long."""
    error = cuda_error(view)
    if error is not None and error.sticky:
        return False  # the watchdog reported the device's own failure
    exception, thread = view.exception, view.thread
    text = f"{exception.type} {exception.message}" if exception is not None else ""
    aborted = view.signal is not None and view.signal.name == "SIGABRT"
    return aborted and bool(_WATCHDOG.search(text) or (thread is not None and thread.kind == "nccl-watchdog"))


def reports_mismatch(view: ProcessView) -> bool:
    """Whether torch compared what the ranks called, before they called it (TORCH_DISTRIBUTED_DEBUG=DETAIL)."""
    return view.exception is not None and (view.exception.message or "").startswith(_COMPARED)


def is_symptom(death: Death) -> bool:
    """Whether this death shows only that another rank was gone, silent, or sent something unexpected."""
    if death.nature == "exception":
        return death.lost_peer or reports_mismatch(death.view)
    return death.nature == "abort" and (abort_words(death.view) is not None or is_watchdog_abort(death.view))


def symptom_evidence(job: JobView) -> list[Evidence]:
    """How the ranks noticed, once for each way; gloo's aborts have their own."""
    ways: dict[tuple[str, int | None, str], list[int]] = {}
    aborted = any(abort_words(death.view) is not None for death in job.deaths)
    for death in job.deaths:
        rank = death.view.process.rank
        if rank is None or death.view.process.role != "rank" or not is_symptom(death):
            continue
        exception = death.view.exception
        if abort_words(death.view) is None:
            signal = death.view.process.signal if exception is not None and exception.type else None
            what = (exception.type if exception else None) or death.what
            how = "then lost the connection" if aborted and death.lost_peer else "noticed"
            ways.setdefault((what, signal, how), []).append(rank)
    return [
        Evidence(
            "rank-state",
            f"{span_words(ranks)} {how}: {what}{_ended_by(signal, ranks)}",
            ranks=ranks,
            text=what,
        )
        for (what, signal, how), ranks in ways.items()
    ]


def _ended_by(signal: int | None, ranks: Sequence[int]) -> str:
    """Of ranks that were on the way out by an exception when a signal ended them."""
    return f", then {signal_name(signal)} ended {'it' if len(ranks) == 1 else 'them'}" if signal is not None else ""


def views_of(job: JobView, ranks: Sequence[int]) -> list[ProcessView]:
    """The processes of these ranks, in that order."""
    found = {view.process.rank: view for view in job.views if view.process.role == "rank"}
    return [found[rank] for rank in ranks if rank in found]


def longest_wait_ns(job: JobView) -> int:
    """How long the rank that waited longest at its end had waited in a collective."""
    waits = [
        waited_ns(view, item)
        for view in job.views
        for item in view.process.snapshot.collectives[-1:]
        if item.state in ("scheduled", "started")
    ]
    return max(waits, default=0)


def longest_group_wait_ns(job: JobView) -> int:
    """How long the rank that waited longest at its end had waited for others to make a process group with it."""
    waits = [
        _since(view, group.begun_ns)
        for view in job.views
        for group in view.process.snapshot.own_groups
        if group.begun_ns is not None
    ]
    return max(waits, default=0)


def waited_ns(view: ProcessView, item: Collective) -> int:
    """How long this process waited in an operation, as far as its end, or its last record, is known."""
    return _since(view, item.scheduled_ns, item.completed_ns) if item.scheduled_ns is not None else 0


def _since(view: ProcessView, start_ns: int, end_ns: int | None = None) -> int:
    """Until `end_ns`, or the end of the process, or its last record, or the last request to end that it handled.

    Of a process that still runs, until its recording was read.
    """
    snapshot = view.process.snapshot
    process = view.process
    until = end_ns or process.ended_mono_ns or process.outlived_mono_ns or process.running_mono_ns
    if until is None:
        seen = [event.mono_ns for event in snapshot.events[-1:]] + [sent.mono_ns for sent in sent_signals(snapshot)]
        until = max(seen, default=None)
    return max(0, until - start_ns) if until is not None else 0
