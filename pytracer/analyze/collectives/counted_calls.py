"""What to do where ranks were at different lines: by a branch, by what one left out, by how often each called there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer.analyze.collectives.call_sites import Site, calls_by_site, counts_at, site_of
from pytracer.analyze.collectives.calls_behind import ended_loop, left_words, may_have_left_out
from pytracer.analyze.collectives.caught_errors import caught_error
from pytracer.analyze.collectives.deciders import Deciding, all_deciders, calls_from, ends_early
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.differing_bounds import equal_heads
from pytracer.analyze.collectives.fresh_losses import FreshLoss, fresh_loss
from pytracer.analyze.collectives.frozen_buckets import frozen_bucket
from pytracer.analyze.collectives.guarded_calls import guarded_call
from pytracer.analyze.collectives.left_out_calls import LeftOut, left_out, left_out_in_line
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.matching import GroupMatch, Mismatch
from pytracer.analyze.collectives.mismatch_sides import two_sides
from pytracer.analyze.collectives.more_keys import more_keys
from pytracer.analyze.collectives.own_groups import own_group_advice
from pytracer.analyze.collectives.parted_loops import behind_loop
from pytracer.analyze.collectives.parted_ranks import find_parting
from pytracer.analyze.collectives.rank_branches import branch_advice, data_branch_advice
from pytracer.analyze.collectives.rounds import (
    calls_within_steps,
    counted_words,
    rounds_words,
    site_words,
    skipped_words,
)
from pytracer.analyze.collectives.unreduced_gradients import unreduced_gradients
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.view import JobView, ProcessView


def loss_without_parameters(job: JobView, match: GroupMatch, found: Mismatch) -> FreshLoss | None:
    """Where one rank's backward() had called fewer collectives, in an operation that the other is not at."""
    sides = two_sides(job, found) if found.field == "op" else None
    counts = [calls_by_site(view, match.name) for view, _ in sides] if sides is not None else []
    for view, call in sides or ():
        site, frame = site_of(call), place_of(call)
        if site is None or frame is None or None in counts or len({count[site] for count in counts if count}) < 2:
            continue
        fresh = fresh_loss(view.process.snapshot, frame)
        if fresh is not None:
            return fresh
    return None


def at_other_lines(job: JobView, match: GroupMatch, found: Mismatch) -> LeftOut | None:
    """A branch on the rank around one of the calls; else how often each rank had called from the two lines."""
    sides = views_of(job, [side.ranks[0] for side in found.variants[:2]])
    parting = find_parting(sides[0], found.variants[0].call, sides[1], found.variants[1].call) if sides[1:] else None
    if parting is not None and parting.one_rank:
        return LeftOut(parting.subject, parting.advice)
    calls = (found.variants[0].call, found.variants[1].call)
    if not sides[1:]:
        return _below(job, found, sides)
    pair = Side(sides[0], way_to(sides[0], calls[0]), calls[0]), Side(sides[1], way_to(sides[1], calls[1]), calls[1])
    known = caught_error(*pair) or _below(job, found, sides, pair)
    if known is not None:
        return known
    keyed = more_keys(*pair) or more_keys(*pair[::-1])
    if keyed is not None and ended_loop(all_deciders(*pair)) is None:  # that one counts the rounds, too
        return keyed
    parted = LeftOut(parting.subject, parting.advice) if parting is not None else None
    if parting is not None and not parting.inferred and not (parting.skipped and parting.subject is None):
        return parted
    deciding = all_deciders(*pair)
    without = left_out_in_line(*pair) if site_of(calls[0]) == site_of(calls[1]) else left_out(deciding)
    if without is not None:
        return without
    maybe = may_have_left_out(deciding)
    if parting is not None and not parting.inferred:
        return maybe or LeftOut(parting.subject or parting.counted, parting.advice)
    ended_early = _ended_early(deciding) if parting is None else None
    if ended_early is not None:
        return ended_early
    fresh = loss_without_parameters(job, match, found)
    if fresh is not None:
        return LeftOut(None, fresh.advice)
    frozen = frozen_bucket(pair[0], pair[1])
    if frozen is not None:
        at = place_of(found.variants[0].call)
        words = frozen.words_in(at.file if at is not None else None)
        return LeftOut(f"{words}: a rank on which it ran does not reduce that bucket", frozen.advice)
    unreduced = unreduced_gradients(match, pair)
    if unreduced is not None:
        return LeftOut(unreduced.subject, unreduced.advice)
    counts = _counts(match, pair)
    if counts is None:
        return parted
    if not all(counts.of_often):
        return maybe or parted or _only_one(pair)  # each rank has a line of its own: a branch
    steps = calls_within_steps(sides[0], sides[1], match.name, counts.often_site)
    if isinstance(steps, tuple):
        return LeftOut(None, _uneven_step(counts.often_site, steps, sides))
    if maybe is not None:
        return maybe
    ended = ended_loop(deciding)
    if ended is not None and ended.advice:
        return ended
    loops_alone = bool(deciding) and all(there.number == counts.often.number for there, _, _ in deciding)
    return counts.words(ended, steps, of_rounds=parting is not None or loops_alone)


def _below(job: JobView, found: Mismatch, sides: Sequence[ProcessView], pair: Sequence[Side] = ()) -> LeftOut | None:
    """A branch on the rank around one of the calls, or a group that one rank alone made. `pair`: both sides."""
    for side, view, absent in zip(found.variants, sides, pair[::-1] or (None, None), strict=False):
        inside = library_call(view, side.call)
        below = own_group_advice(job, view, side) or branch_advice(view, side.call, inside, absent)
        if below is not None:
            return LeftOut(None, below)
    return None


class _Counts(msgspec.Struct, frozen=True):
    """How often two ranks had called from the lines that they were at.

    `often`: the rank at the line that was called from more often; `rare`: the other one.
    """

    pair: tuple[Side, Side]
    often: Side
    often_site: Site
    of_often: tuple[int, int]
    rare: Side
    rare_site: Site
    of_rare: tuple[int, int]

    def words(self, ended: LeftOut | None, steps: bool | None, *, of_rounds: bool) -> LeftOut:
        """What to look at: the rounds of the ranks, or what leaves out the rarer call.

        Args:
            ended: What is known of a loop that ended.
            steps: Whether they called as often in each step, as far as that is recorded.
            of_rounds: Whether it can only be the rounds.
        """
        here, (often, rare) = self.rare_site[0], (self.often, self.rare)
        often_counted, rare_counted = ([*zip(self.pair, item, strict=True)] for item in (self.of_often, self.of_rare))
        fact = ended.subject if ended is not None else counted_words(self.often_site, often_counted, here=here)
        said, other = counted_words(self.often_site, often_counted), counted_words(self.rare_site, rare_counted)
        snapshot, equal = often.view.process.snapshot, equal_heads(often, rare)
        rounds = said + rounds_words(snapshot, often.way, self.often_site, steps, equal)
        if of_rounds or (self.of_rare[0] == self.of_rare[1] > 0 and self.of_often[0] != self.of_often[1]):
            return LeftOut(fact, rounds)  # as many from the other line explain nothing
        if not all(self.of_rare):
            return LeftOut(
                fact,
                f"{rounds} If {rare.name} alone comes to {site_words(self.rare_site)} (a branch on the rank "
                "or on its data), take it out of that branch, or call it on all ranks.",
            )
        behind = self.pair[0 if self.of_rare[0] < self.of_rare[1] else 1]
        known = skipped_words(rare.view.process.snapshot, rare.way, self.rare_site)
        fact = counted_words(self.rare_site, rare_counted, here=here)
        if known is not None and self.of_rare[0] != self.of_rare[1]:
            return LeftOut(
                fact,
                f"{other}: see whether {known} left it out on {behind.name} alone. All ranks must take part in it in "
                "each round, with zeros or another neutral value, or all leave out the same round (all_reduce() the "
                "flag).",
            )
        by_one = rare is not behind and abs(self.of_rare[0] - self.of_rare[1]) == 1
        guarded = guarded_call(rare.view, rare.way, here) if by_one else None
        if guarded is not None:
            return LeftOut(guarded.subject(behind.name), f"{guarded.advice(behind.name, other)} Otherwise: {rounds}")
        return LeftOut(
            fact,
            f"{other}: see whether {often.name} skips it (an early return, a `continue`, an error that is caught): all "
            f"ranks must take part, with a neutral value. {rounds}",
        )


def _counts(match: GroupMatch, pair: tuple[Side, Side]) -> _Counts | None:
    """None where the two are at one line, or where that or how often is not known."""
    sites = [site_of(side.call) for side in pair]
    counts = [calls_by_site(side.view, match.name) for side in pair]
    if sites[0] is None or sites[1] is None or sites[0] == sites[1] or counts[0] is None or counts[1] is None:
        return None
    (first, one), (second, other) = ((site, (counts[0][site], counts[1][site])) for site in (sites[0], sites[1]))
    if sum(one) > sum(other):
        return _Counts(pair, pair[0], first, one, pair[1], second, other)
    return _Counts(pair, pair[1], second, other, pair[0], first, one)


def _ended_early(deciding: Sequence[Deciding]) -> LeftOut | None:
    """Where all that can have decided is a loop that a `break` or `return` may have ended."""
    there, absent, by = deciding[0] if len(deciding) == 1 else (None, None, None)
    if there is None or absent is None or by is None or not isinstance(by.node, LOOPS) or not ends_early(by.node):
        return None
    found = behind_loop(there, absent, by.frame, by.node)
    counted = len(calls_from(absent, there)) > 0
    return LeftOut(found.subject or left_words(there, absent, by), found.advice) if found and counted else None


def _uneven_step(site: Site, steps: tuple[int, int, int], sides: Sequence[ProcessView]) -> str:
    step, *counts = steps
    said = " and ".join(f"{count} on rank {view.process.rank}" for count, view in zip(counts, sides, strict=True))
    return (
        f"In step {step}, {site_words(site)} called {said}: not the number of steps differs, but what one calls. "
        "Compare what the ranks do there: options of DistributedDataParallel, layers and frozen parameters of the "
        "model, batches in a step (accumulation)."
    )


def _only_one(pair: tuple[Side, Side]) -> LeftOut | None:
    """A condition around the line of one rank, from which the other never called a collective."""
    for there, absent in (pair, pair[::-1]):
        never = counts_at(there.call, [absent.view]) == [0]
        below = data_branch_advice(there, absent) if never else None
        if below is not None:
            return LeftOut(None, below)
    return None
