"""collective-late-rank: a rank called a collective when the others had already given up waiting for it there.

What: ranks of one host called a collective and gave up by a time-out; another one called the same collective after
that.

Why it happens: the rank was busy or waited for something for longer than the time-out: a file lock that a rank holds
which waits in that very collective, a download, a slow step.

What to do: find out what the rank did before the call. Do not communicate while a lock is held.

How it can be wrong: what it did in between is not recorded, only when it came.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import capital, time_words
from pytracer.analyze.collectives.absent_ranks import last_seen
from pytracer.analyze.collectives.description import at_place, group_words, place_of, span_words
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.collectives.time_limits import time_limit
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.deaths.attribution import symptom_evidence, views_of
from pytracer.analyze.deaths.peer_errors import PEER_SILENT
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Evidence

_LEAST_NS = 1_000_000_000
_LOCKS = ("flock", "lockf", "acquire", "FileLock", "SoftFileLock", "Lock", "InterProcessLock")


class _Late(msgspec.Struct, frozen=True):
    """Who gave up first, and the first one that called after that. `gap_ns`: between their calls."""

    match: GroupMatch
    waiter: ProcessView
    call: Collective
    late: ProcessView
    own: Collective
    gap_ns: int


class CollectiveLateRank:
    """Fires for the first such call of each process group."""

    id = "collective-late-rank"
    needs = ("COLLECTIVES", "GROUP")

    def check(self, job: JobView) -> tuple[Judgement[_Late], ...] | NoFinding:
        """One judgement per group."""
        found = [item for match in job.matches.groups for item in _find(job, match)]
        judgements = tuple(_judge(job, item) for item in found)
        return (
            judgements or nothing_to_compare(job) or not_found("no rank called a collective that others had given up")
        )

    def describe(self, job: JobView, judgement: Judgement[_Late]) -> Description:
        """See Rule."""
        item = judgement.found
        rank, waiter = f"rank {item.late.process.rank}", f"rank {item.waiter.process.rank}"
        number = item.call.sequence_nr
        waited = (item.call.completed_ns or 0) - (_begun(item.call) or 0)
        return Description(
            f"{capital(rank)} came to {item.own.op} (collective {number} of {group_words(item.match)})"
            f"{at_place(item.own)} {time_words(item.gap_ns)} after {waiter}, which had given up after "
            f"{time_words(waited)}.",
            [
                Evidence(
                    "collective-state",
                    f"{waiter} called it at {time_words(_at(item.waiter, _begun(item.call)))} and gave up at "
                    f"{time_words(_at(item.waiter, item.call.completed_ns))}; {rank} called it at "
                    f"{time_words(_at(item.late, _begun(item.own)))}",
                    ranks=[item.late.process.rank or 0, item.waiter.process.rank or 0],
                    group=item.match.name,
                    op=item.own.op,
                    sequence_nr=number,
                    python=place_of(item.own),
                ),
                *symptom_evidence(job),
            ],
            _advice(item, rank, waiter),
            [f"what {rank} did before: its stacks are those of its end"],
            has_place=True,
        )


def _find(job: JobView, match: GroupMatch) -> Iterator[_Late]:
    """The first collective of a group in which a rank came after another one's time-out."""
    for number in sorted({number for calls in match.open.values() for number in calls}):
        calls = [
            (view, match.open[rank][number])
            for rank in sorted(match.open)
            if number in match.open[rank]
            for view in views_of(job, [rank])
        ]
        gave_up = [
            (end, view, call)
            for view, call in calls
            if call.state == "failed" and (end := call.completed_ns) is not None and _lasted(call) >= _LEAST_NS
            if view.exception is not None and PEER_SILENT.search(view.exception.message or "")
        ]
        if not gave_up:
            continue
        end, waiter, call = min(gave_up, key=lambda entry: entry[0])
        after = [
            (begun, view, own)
            for view, own in calls
            if view.index != waiter.index and _same_clock(view, waiter) and (begun := _begun(own)) is not None
            if begun >= end
        ]
        if after and match.mismatch is None:
            begun, late, own = min(after, key=lambda entry: entry[0])
            yield _Late(match, waiter, call, late, own, begun - (_begun(call) or begun))
        return


def _judge(job: JobView, item: _Late) -> Judgement[_Late]:
    judgement = Judgement("missing-rank", "likely", (item.late,), item)
    name = f"{item.own.op} #{item.own.sequence_nr}"
    did = {item.late.process.rank or 0: f"came to {name} when others had given up"}
    why = f"waited in {name} for {span_words([item.late.process.rank or 0])}"
    return account(job, judgement, why, did, waited_ns=_lasted(item.call), ends=True)


def _advice(item: _Late, rank: str, waiter: str) -> str:
    lock = _lock_before(item)
    if lock is not None:
        return (
            f"{capital(lock)} comes before that call: {waiter} may have held that lock while it waited there for "
            f"{rank}, which waited for the lock. Release it before any collective, and let one rank prepare while the "
            "others wait in a barrier outside of it."
        )
    seen = last_seen(item.late).sentence if item.late.process.snapshot.collectives[1:] else None
    limit, place = time_limit(item.call, item.match, [item.waiter]), place_of(item.own)
    where = limit.set_at(place.file if place is not None else None)
    more = (
        f" If it may take longer than {limit.time}, give {where} a larger timeout=." if limit.time is not None else ""
    )
    return (
        f"Find out what {rank} did before: it was slow, or waited for something (a lock, a download, a child)"
        f"{f'; {seen}' if seen is not None else ''}. `pytracer attach` shows it while the others wait.{more}"
    )


def _lock_before(item: _Late) -> str | None:
    """`line 13 (`fcntl.flock(...)`)`, of the function that makes the call."""
    frame, snapshot = place_of(item.own), item.late.process.snapshot
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    own = [part for part in own_nodes(scope_of(tree, frame.line)) if isinstance(part, ast.Call)]
    lines = [part.lineno for part in own if called_name(part) in _LOCKS and part.lineno < frame.line]
    text = quoted(snapshot, frame, max(lines)) if lines else None
    return f"line {max(lines)} ({text})" if text is not None else None


def _lasted(call: Collective) -> int:
    begun = _begun(call)
    return call.completed_ns - begun if call.completed_ns is not None and begun is not None else 0


def _begun(call: Collective) -> int | None:
    return call.started_ns if call.scheduled_ns is None else call.scheduled_ns


def _same_clock(one: ProcessView, other: ProcessView) -> bool:
    return one.process.snapshot.boot_id == other.process.snapshot.boot_id


def _at(view: ProcessView, mono_ns: int | None) -> int:
    return view.clock.relative(mono_ns) or 0
