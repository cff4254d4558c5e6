"""Which deaths only tell that something was wrong between ranks, and which finding about collectives accounts for them.

A lost connection, a time-out, gloo's abort over a message of the wrong size and the watchdog's abort are noticed by
ranks that need have done nothing wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.collectives.matching import records_collectives
from pytracer.analyze.evidence.cuda_errors import cuda_error
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGQUIT, SIGTERM
from pytracer.analyze.view import Death, Draft, JobView, Outcome, ProcessView, cannot_decide, not_found
from pytracer.decode.types.snapshot import Collective

STOOD_NS = 10_000_000_000  # who ends a job that has waited as long ends a hang
_WATCHDOG = re.compile(r"watchdog|collective operation timeout|ncclCommWatchdog|heartbeat monitor", re.IGNORECASE)
_OUTSIDE = (SIGTERM, SIGINT, SIGHUP, SIGQUIT)
_SIZES = re.compile(r"(\d+) vs (\d+)")


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
        return False  # the watchdog told of the device's own failure
    exception, thread = view.exception, view.thread
    text = f"{exception.type} {exception.message}" if exception is not None else ""
    aborted = view.signal is not None and view.signal.name == "SIGABRT"
    return aborted and bool(_WATCHDOG.search(text) or (thread is not None and thread.kind == "nccl-watchdog"))


def is_symptom(death: Death) -> bool:
    """Whether this death says no more than that another rank was gone, silent, or sent something unexpected."""
    if death.nature == "exception":
        return death.lost_peer
    return death.nature == "abort" and (abort_words(death.view) is not None or is_watchdog_abort(death.view))


def is_settled(job: JobView) -> bool:
    """Whether an earlier finding has accounted for all deaths."""
    return bool(job.deaths) and not job.suspects


def account(
    job: JobView, item: Draft, why: str, did: Mapping[int, str], *, waited_ns: int = 0, ends: bool = False
) -> Draft:
    """The finding, with the deaths that it accounts for; it leads when these are all there are.

    `why` is what the others died of, `did` what each culprit did, by rank; empty when all are alike. After an earlier
    cause, or beside a death of another nature, it only accompanies. `ends`: the culprits' own ends, whatever they were,
    came after what they did.
    """
    stood = waited_ns >= STOOD_NS
    culprits = {view.index for view in item.views} if ends else set()
    suspects = [death for death in job.deaths if death.primary is not False]
    mine = [
        death
        for death in suspects
        if death.view.index in culprits or is_symptom(death) or (stood and _from_outside(death))
    ]
    if is_settled(job) or len(mine) < len(suspects):
        return replace(item, accompanies=True)
    views = {death.view.index: (death.view, why) for death in mine}
    for view in item.views:
        words = did.get(view.process.rank, "") if view.process.rank is not None and did else why
        if words:
            views[view.index] = (view, words)
    return replace(item, leads=True, explains=tuple(views.values()))


def _from_outside(death: Death) -> bool:
    return death.nature == "interrupt" or (death.nature == "sent" and death.view.process.signal in _OUTSIDE)


def nothing_to_compare(job: JobView) -> Outcome | None:
    """Why there is nothing to say about collectives; None when there are groups."""
    if job.matches.groups:
        return None
    blind = [process.rank for process in job.job.ranks if not records_collectives(process) and process.rank is not None]
    if blind:
        return cannot_decide(f"the collectives of {span_words(blind)} were not recorded")
    return not_found("no process group ran a collective")


def symptom_words(job: JobView) -> list[str]:
    """How the ranks noticed, one sentence for each way; gloo's aborts have their own."""
    ways: dict[str, list[int]] = {}
    for death in job.deaths:
        rank = death.view.process.rank
        if rank is None or death.view.process.role != "rank" or not is_symptom(death):
            continue
        exception = death.view.exception
        if abort_words(death.view) is None:
            ways.setdefault((exception.type if exception else None) or death.what, []).append(rank)
    return [f"{span_words(ranks)} noticed: {what}" for what, ranks in ways.items()]


def views_of(job: JobView, ranks: Sequence[int]) -> list[ProcessView]:
    """The processes of these ranks, in that order."""
    found = {view.process.rank: view for view in job.views if view.process.role == "rank"}
    return [found[rank] for rank in ranks if rank in found]


def waited_ns(view: ProcessView, item: Collective) -> int:
    """How long this process waited in an operation, as far as its end, or its last record, is known."""
    snapshot = view.process.snapshot
    until = item.completed_ns or view.process.ended_mono_ns
    if until is None and snapshot.events:
        until = snapshot.events[-1].mono_ns
    return max(0, until - item.scheduled_ns) if until is not None and item.scheduled_ns is not None else 0
