"""Is a running job in a deadlock that its recordings prove? Less than a proof is None: a rank may be late for hours.

Three proofs, each from an operation that is still open:

- a rank ended and never entered a collective that needs it, or never sent a message that another one receives;
- ranks are in different operations under one sequence number of a group, which a backend never pairs;
- ranks wait for each other in a cycle of groups, each of them blocked in the call itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from pytracer._text import capital
from pytracer.analyze.collectives.absent_ranks import wait_words
from pytracer.analyze.collectives.description import at_place, global_rank, group_words, span_words
from pytracer.analyze.collectives.matching import GroupMatch, Matches, Variant, match_job, records_collectives
from pytracer.analyze.collectives.wait_graph import Wait, Waiting, find_waiting
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.timeline.restarts import split_attempts
from pytracer.decode.types.snapshot import Collective, Job, Process
from pytracer.report.live import Deadlock

_OPEN = ("scheduled", "started")
_FROM_ROOT = ("broadcast", "scatter")
_TO_ROOT = ("reduce", "gather")
_SHOWN = 4

Gone = Callable[[Process], bool]


def has_end(process: Process) -> bool:
    """Whether its own recording, or who reaped it, says that it has ended: a pid that is not found proves nothing."""
    return process.status_kind in ("exited", "signaled", "exception")


def find_deadlock(job: Job, now_ns: int, gone: Gone = has_end) -> Deadlock | None:
    """The first proof.

    Args:
        job: all recordings of the run on this host.
        now_ns: CLOCK_MONOTONIC of this host.
        gone: whether a process has ended for certain.
    """
    _, last = split_attempts(job)[-1]
    ranks = {process.rank: process for process in last.ranks if process.rank is not None}
    if len(ranks) != len(last.ranks):
        return None  # a rank twice: which one is meant is not known
    matches = match_job(last)
    waiting = find_waiting(last, matches)
    look = _Look(ranks, {rank for rank, process in ranks.items() if gone(process)}, now_ns)
    return look.ended(matches, waiting) or look.disagreeing(matches) or look.cycle(waiting)


class _Look:
    def __init__(self, ranks: dict[int, Process], gone: set[int], now_ns: int) -> None:
        self._ranks = ranks
        self._gone = gone
        self._now_ns = now_ns

    def ended(self, matches: Matches, waiting: Waiting) -> Deadlock | None:
        """A rank that ended is needed by an open operation."""
        for match in matches.groups:
            missing = match.missing()
            if missing is None:
                continue
            number, absent = missing
            for rank in absent:
                waiters = [
                    waiter
                    for waiter, calls in sorted(match.open.items())
                    if waiter not in self._gone
                    and (call := calls.get(number)) is not None
                    and call.state in _OPEN
                    and _needs(call, match, waiter, rank)
                ]
                if waiters and rank in self._gone and self._never_called(rank, match):
                    call = match.open[waiters[0]][number]
                    what = f"and never entered {call.op} #{number} of {group_words(match)}, in which "
                    return self._of_ended(rank, what, waiters, call)
        for wait in waiting.waits:
            (waiter, *_), (peer, *_) = wait.waiters, wait.targets
            blocked = wait.call.op == "recv" and wait.call.state in _OPEN and wait.tags is None
            whole = peer in self._ranks and not _forgot(self._ranks[peer])
            if blocked and wait.call.point_to_point and peer in self._gone and waiter not in self._gone and whole:
                return self._of_ended(peer, "without a message for which ", [waiter], wait.call)
        return None

    def _of_ended(self, rank: int, what: str, waiters: Sequence[int], call: Collective) -> Deadlock:
        verb = "waits" if len(waiters) == 1 else "wait"
        for_long, since = self._since(call)
        says = (
            f"rank {rank} {_end_words(self._ranks[rank])} {what}{span_words(waiters)} {verb}{for_long}{at_place(call)}"
        )
        return Deadlock("rank-ended", says, [*waiters], [rank], call.group, call.sequence_nr, since)

    def disagreeing(self, matches: Matches) -> Deadlock | None:
        """Ranks are in different operations, and one of them is open and needs a rank that called another one."""
        for match in matches.groups:
            apart = match.mismatch
            if apart is None or apart.field != "op":
                continue
            for variant in apart.variants:
                for rank in variant.ranks:
                    call = match.open.get(rank, {}).get(apart.sequence_nr)
                    if call is None or not self._stands(rank, call):
                        continue
                    others = [item for item in apart.variants if item is not variant]
                    if any(_needs(call, match, rank, other) for item in others for other in item.ranks):
                        return self._of_disagreement(match, apart.sequence_nr, apart.variants, call)
        return None

    def _of_disagreement(
        self, match: GroupMatch, number: int, variants: Sequence[Variant], call: Collective
    ) -> Deadlock:
        each = [
            f"{span_words(item.ranks)} {'calls' if item.count == 1 else 'call'} {item.call.op}{at_place(item.call)}"
            for item in variants[:_SHOWN]
        ]
        for_long, since = self._since(call)
        says = f"ranks disagree on collective #{number} of {group_words(match)}{for_long}: {', '.join(each)}"
        ranks = sorted(rank for item in variants for rank in item.ranks)
        return Deadlock("different-collectives", says, ranks, [], match.name, number, since)

    def cycle(self, waiting: Waiting) -> Deadlock | None:
        """Each rank is blocked in a collective of one group, and the next one in another group."""
        for ranks in waiting.cycles:
            waits = [self._blocked(rank, after, waiting) for rank, after in pairwise([*ranks, ranks[0]])]
            found = [wait for wait in waits if wait is not None]
            if len(ranks) > 1 and len(found) == len(ranks):
                longest = max(found, key=lambda wait: self._since(wait.call)[1] or 0)
                for_long, since = self._since(longest.call)
                words = "; ".join(wait_words(wait) for wait in found[:_SHOWN])
                says = f"{span_words(ranks)} wait for each other{for_long}: {words}"
                call = found[0].call
                return Deadlock("cycle", says, sorted(ranks), [], call.group, call.sequence_nr, since)
        return None

    def _blocked(self, rank: int, after: int, waiting: Waiting) -> Wait | None:
        """The wait for the next rank, if it can do nothing else: one thread, in a call that returns when done."""
        process = self._ranks.get(rank)
        if process is None or len({item.tid for item in process.snapshot.collectives}) != 1:
            return None
        for wait in waiting.of(rank):
            own = wait.group.open.get(rank, {}).get(wait.call.sequence_nr) if wait.group is not None else None
            if own is None or own.point_to_point or own.async_op or (own.backend or "") != "gloo":
                continue
            if after not in wait.targets or wait.group is None or not self._stands(rank, own):
                continue
            if _needs(own, wait.group, rank, after) and self._never_called(after, wait.group):
                return Wait((rank,), (after,), own, wait.group)
        return None

    def _stands(self, rank: int, call: Collective) -> bool:
        return rank not in self._gone and call.state in _OPEN and not call.progress_unknown

    def _never_called(self, rank: int, match: GroupMatch) -> bool:
        """Whether what its ring lacks was not called: an older one is there, or nothing was overwritten."""
        process = self._ranks.get(rank)
        if process is None or not records_collectives(process):
            return False
        items = process.snapshot.collectives
        return not _forgot(process) or any(item.group == match.name and not item.point_to_point for item in items)

    def _since(self, call: Collective) -> tuple[str, int | None]:
        began = call.scheduled_ns or call.started_ns
        since = self._now_ns - began if began is not None else None
        return (f" for {since / 1e9:.0f} s" if since is not None else ""), since


def _needs(call: Collective, match: GroupMatch, rank: int, other: int) -> bool:
    """Whether this rank's part of an operation cannot be done without the other rank's."""
    if call.root is None and call.op in (*_FROM_ROOT, *_TO_ROOT):
        return False
    if call.op in _FROM_ROOT:
        return other == global_rank(match, call.root or 0)
    if call.op in _TO_ROOT:
        return rank == global_rank(match, call.root or 0)
    return True


def _forgot(process: Process) -> bool:
    items = process.snapshot.collectives
    return bool(items) and items[0].number != 1


def _end_words(process: Process) -> str:
    if process.status_kind == "signaled" and process.signal is not None:
        return f"was ended by {signal_name(process.signal)}"
    if process.status_kind == "exited" and process.exit_code is not None:
        return f"has ended with status {process.exit_code}"
    return "has ended"


def deadlock_line(found: Deadlock) -> str:
    """One sentence."""
    return f"{capital(found.says)}."


def gone_by(ended: Iterable[tuple[int, int]]) -> Gone:
    """Processes by pid and start time, as the launcher saw them end."""
    known = set(ended)
    return lambda process: (process.snapshot.pid, process.snapshot.start_ticks) in known
