"""uneven-inputs: a rank was done and left, while others still waited for it in a collective.

What: a rank ended with status 0, or was already shutting down, and others called a collective that it did not.

Why it happens: ranks have different numbers of batches, so that one leaves the loop earlier; or a rank returns early.
DistributedDataParallel all-reduces in every backward, and so needs the same number of steps on all ranks.

The samples of each rank's DataLoader are recorded: where they differ, both numbers are told, with what each rank draws
for itself of them, by a generator that is not seeded alike. A sampler of the program that gives each rank a part of its
own is named with the number of samples, where that does not divide by the ranks.

A call that one rank made more may have met another call of the same operation, from another line, of the rank that
left: then the ranks are out of step from there on, and that first pair is named, with what decided about it.

A rank that skipped a call in its last round by an `if` leaves others waiting, too: that line is named, where the calls
of the step show it.

The loop of a comprehension counts like one of a statement. Where the last call of both ranks is of a line behind a
loop, in a round of another one around it, both had gone through the inner one alike, and the outer one is named. Of its
condition what one rank alone changes is told, such as a count of rounds without progress that only rank 0 sets back.

What to do: give all ranks the same number of batches (DistributedSampler, drop_last=True), or wrap the loop in the
join() context manager of DistributedDataParallel (torch.distributed.algorithms.Join). No sampler deals out the samples
of an IterableDataset: there the ranks need join(), or as many samples of their own.

How it can be wrong: the rank may have left for another reason, such as an early stop that not all ranks agreed on.
"""

from __future__ import annotations

from msgspec import structs

from pytracer._text import capital, count_words
from pytracer.analyze.collectives.absent_ranks import Absence, extra_before, find_absences, last_seen, paired_before
from pytracer.analyze.collectives.call_sites import calls_by_site, site_of
from pytracer.analyze.collectives.conditional import is_conditional
from pytracer.analyze.collectives.dealt_samples import dealt_samples
from pytracer.analyze.collectives.description import at_place, place_of, span_words
from pytracer.analyze.collectives.extra_calls import ExtraCall
from pytracer.analyze.collectives.left_loops import LeftLoop, left_loop
from pytracer.analyze.collectives.left_out_calls import LeftOut, left_out_at_end
from pytracer.analyze.collectives.more_keys import more_keys
from pytracer.analyze.collectives.parted_branches import passed_by_words
from pytracer.analyze.collectives.rounds import site_words
from pytracer.analyze.collectives.uneven_loops import FewerRounds, fewer_rounds
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.deaths.attribution import symptom_evidence, views_of
from pytracer.analyze.evidence.ends.exit_requests import left_at
from pytracer.analyze.evidence.ends.sent_signals import Sent, last_request
from pytracer.analyze.evidence.ends.signal_senders import chain_words
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_ADVICE = (
    "Count the rounds on all ranks. If they differ, give all the same number of batches (DistributedSampler, "
    "drop_last=True), or wrap the loop in the join() context manager of DistributedDataParallel; if not, one rank left "
    "out a call."
)
_ASKED_ADVICE = (
    "{0} left alone because {1} had asked it to: a handler that sets a flag must not end one rank only. all_reduce() "
    "the flag (MAX) in each step, so that all ranks save and leave after the same one; and find out why only one "
    "was asked."
)
_EARLY_ADVICE = (
    "Find out why {} ended with status 0 before any collective of that group: an early return, sys.exit(), or a branch "
    "on the rank. All ranks of the group must call each of its collectives."
)


class UnevenInputs:
    """Fires for ranks that ended well while others waited for them."""

    id = "uneven-inputs"
    needs = ("COLLECTIVES", "GROUP", "status")

    def check(self, job: JobView) -> tuple[Judgement[Absence], ...] | NoFinding:
        """One judgement per collective."""
        absences = [item for item in find_absences(job) if item.fate == "left" and not is_conditional(job, item)]
        left = tuple(_judge(job, item) for item in absences)
        return left or not_found("no rank had ended well while others still waited for it")

    def describe(self, job: JobView, judgement: Judgement[Absence]) -> Description:
        """See Rule."""
        item, steps = judgement.found, _steps(job, judgement.found)
        asked = _asked(job, item)
        extra = extra_before(job, item) if asked is None else None
        if extra is not None and (extra.known or _rounds(job, item) is None):
            return _of_extra(job, item, extra)
        ranks, wait = item.ranks, item.wait
        last = wait.group.last.get(ranks[0]) if wait.group is not None else None
        early, rounds = last == 0, _rounds(job, item)
        count = f" after {count_words(last, 'collective')}" if last is not None and len(ranks) == 1 else ""
        count += _of_line(rounds, item) if count else ""
        if early:
            count = " before its first collective" if len(ranks) == 1 else " before their first collective"
        without = _left_out(job, item) if asked is None and not early else None
        loop = _loop(job, item) if asked is None and not early and without is None else None
        known = _fewer(job, item) if asked is None and not early and without is None else None
        why = f": {loop.subject(span_words(ranks))}" if loop is not None and known is None else ""
        why = known.subject if known is not None else why
        why = f": {without.subject}" if without is not None and without.subject is not None else why
        how = f"{_asked_words(job, item, asked)}{left_at(item.views)}"
        subject = capital(span_words(ranks))
        if loop is not None and loop.state is not None and known is None:
            first, why = loop.subject(span_words(ranks)), ""
            subject = f"{capital(first)}. {'It' if len(ranks) == 1 else 'They'}"
        return Description(
            f"{subject} finished{count} and left{how}, while "
            f"{span_words(wait.waiters)} went on to {item.where}{at_place(wait.call)}{why}.",
            [
                steps,
                rounds,
                *(last_seen(view) for view in item.views[:2]),
                paired_before(job, item),
                *symptom_evidence(job),
            ],
            _ASKED_ADVICE.format(capital(span_words(ranks)), signal_name(asked.signal))
            if asked is not None
            else _early_advice(job, item)
            if early
            else without.advice
            if without is not None
            else known.advice
            if known is not None
            else loop.advice(span_words(ranks))
            if loop is not None
            else _ADVICE,
            [
                (
                    "the number of batches that each rank has"
                    if rounds is None
                    else f"how many rounds {span_words(wait.waiters)} had left"
                )
                if steps is None and not early and without is None and known is None and (loop is None or not loop.ends)
                else None
            ],
        )


def _of_extra(job: JobView, item: Absence, extra: ExtraCall) -> Description:
    """Where an earlier pair of calls from different lines is the reason."""
    absent, waiters = span_words(item.ranks), span_words(item.wait.waiters)
    return Description(
        f"{capital(extra.subject)}. It met {extra.met}, so that {absent} finished and left while {waiters} waited in "
        f"{item.wait.call.op} #{item.wait.call.sequence_nr}{at_place(item.wait.call)}.",
        [*(last_seen(view) for view in item.views[:2]), paired_before(job, item), *symptom_evidence(job)],
        extra.advice,
        [],
    )


def _loop(job: JobView, item: Absence) -> LeftLoop | None:
    """Around the call of a rank that waited."""
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    loop = left_loop(waiter, item.wait.call, item.ranks, _only(item)) if waiter is not None else None
    if waiter is None or loop is None or item.wait.group is None:
        return loop
    return structs.replace(loop, dealt=dealt_samples(waiter, item.views[0], len(item.wait.group.ranks)))


def _only(item: Absence) -> ProcessView | None:
    return item.views[0] if len(item.views) == 1 else None


def _fewer(job: JobView, item: Absence) -> FewerRounds | None:
    """Where the loop of a rank that waited goes through other samples on each, or what each draws for itself."""
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    return fewer_rounds(waiter, item.wait.call, item.views[0]) if waiter is not None and len(item.views) == 1 else None


def _left_out(job: JobView, item: Absence) -> LeftOut | None:
    """What the one rank that left skipped in the round that it took part in."""
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    if waiter is None or len(item.views) != 1:
        return None
    call = item.wait.call
    found = left_out_at_end(waiter, call, item.views[0])
    there = Side(waiter, way_to(waiter, call), call)
    return found or more_keys(there, structs.replace(there, view=item.views[0], way=()), ended=True)


def _early_advice(job: JobView, item: Absence) -> str:
    """With the branch that the ranks which waited had come by."""
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    absent = span_words(item.ranks)
    words = passed_by_words(waiter, item.wait.call, absent) if waiter is not None else None
    return f"{words} All ranks must call each collective." if words is not None else _EARLY_ADVICE.format(absent)


def _asked(job: JobView, item: Absence) -> Sent | None:
    """The signal that had asked the one absent rank to end, before the ranks that waited for it ended."""
    sent = last_request(item.views[0]) if len(item.views) == 1 else None
    ends = [view.process.ended_mono_ns for view in views_of(job, item.wait.waiters[:1])]
    return sent if sent is not None and all(end is None or sent.mono_ns < end for end in ends) else None


def _asked_words(job: JobView, item: Absence, asked: Sent | None) -> str:
    if asked is None:
        return ""
    return f" after {signal_name(asked.signal)}, sent by {chain_words(job, item.views[0], asked)}"


def _judge(job: JobView, item: Absence) -> Judgement[Absence]:
    judgement = Judgement("missing-rank", "likely", item.views, item)
    did = dict.fromkeys(item.ranks, "finished while others waited for it")
    why = f"{span_words(item.ranks)} had already finished"
    return account(job, judgement, why, did, waited_ns=item.waited_ns, ends=True)


def _of_line(rounds: Evidence | None, item: Absence) -> str:
    """`, 108 of them from line 54,`: where the rank that left had called others, too."""
    counts = rounds.counts if rounds is not None else None
    frame = place_of(item.wait.call)
    last = item.wait.group.last.get(item.ranks[0]) if item.wait.group is not None else None
    return (
        f", {counts[0]} of them from line {frame.line}," if counts and frame is not None and counts[0] != last else ""
    )


def _rounds(job: JobView, item: Absence) -> Evidence | None:
    """How often both ranks had called a collective from the line of the one that waits."""
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    site, group = site_of(item.wait.call), item.wait.group
    if waiter is None or group is None or site is None or len(item.views) != 1:
        return None
    counts = [calls_by_site(view, group.name) for view in (item.views[0], waiter)]
    done = [count[site] for count in counts if count is not None]
    if len(done) < len(counts) or not 1 < done[0] < done[1]:
        return None
    ranks = [item.ranks[0], item.wait.waiters[0]]
    words = f"{site_words(site)} had called {done[0]} collectives on rank {ranks[0]}, and {done[1]} on rank {ranks[1]}"
    frame = PythonFrame(file=site[0], function=site[1], line=site[2])
    return Evidence("call-site", words, python=frame, ranks=ranks, counts=done)


def _steps(job: JobView, item: Absence) -> Evidence | None:
    """`rank 1 made 10 steps, rank 0 was in step 12`."""
    waiter = next((view for view in job.views if view.process.rank == item.wait.waiters[0]), None)
    mine = item.views[0].step
    theirs = waiter.step if waiter is not None else None
    if mine is None or theirs is None or mine == theirs:
        return None
    ranks = [item.ranks[0], item.wait.waiters[0]]
    words = f"rank {ranks[0]} was last in step {mine}, rank {ranks[1]} in step {theirs}"
    return Evidence("rank-state", words, ranks=ranks, counts=[mine, theirs])
