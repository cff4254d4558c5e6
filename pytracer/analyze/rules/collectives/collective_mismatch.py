"""collective-mismatch: ranks called different collectives, or the same one with different arguments.

What: at the same sequence number of a process group, ranks differ in operation, root, reduce operation, dtype, number
of elements or shape. With three ranks or more the majority is taken to be right, and the outvoted ranks are named.

Why it happens: a branch that depends on the rank, data that only some ranks have, a model or dtype that differs between
ranks, a checkpoint or library version that is not the same everywhere.

A condition decides about a call by a value that one rank alone has: reduce() and gather() leave their result there, or
a line below `if rank == 0:` sets it. The condition and that line are named.

Or it asks an object that was made with something which depends on the rank, and that counts, or sets something, on
some ranks only: a progress bar that is disabled on the others. The line that makes it is named, and the one that
counts. Or it asks for a number, a loss, that each rank takes out of a tensor of its own: that line is named.

Gradients are packed into one tensor, and those that are None on a rank are left out: the line that packs them is
named, and the parameters, where their sizes account for the difference.

The values of a dict are stacked, and a branch adds keys on some ranks only: it is named where the keys that it adds are
as many as the difference, with the branch behind it where it asks for a key of another dict.

A loop around the call goes through a dict, or list, in the order in which each rank's own data first put its keys in:
it is named with the lines that do, where the sizes show that the ranks were at different keys. They are those of two
parts of one model, or both ranks had come to a key that was new in this step, or each passed the other's size later.

What each rank has collected (`torch.cat(self.scores)`) is gathered, and no rank is wrong: the line that joins it is
named, and the one that takes the rank's own size for that of all.

An `if` skips a call on one rank, or a dict has fewer keys there: it is named where nothing else on the way can have
decided, in a round that both ranks take part in. Of a gradient that is None there, the parameter is named, and the
condition below which forward() runs its layer.

An `if` goes by the files in a folder, and each rank has made one of its own (mkdtemp(), uuid4(), the time): the line
that makes it is named, and the one that writes there on one rank only. Not where the program may share the path.

A count of caught errors that the program keeps (`self.skipped += 1` in an `except`, and nowhere else) was not 0 on the
rank that had called less often: the handler had left out a call there. Where it was 0, the handler is no reason.

An exception on one rank, whose `except` or `finally` then calls a collective, while the others go on: it is named,
where that call failed.

A layer that a line below an `if` freezes after DDP has wrapped the model: a rank on which it ran does not reduce that
bucket. The line is named where no loop on the way can have more rounds on one rank.

Each rank calls its part of an exchange in a loop of its own, one sends and the other receives: both loops are named.

Ranks ran different units of FSDP in one forward: the first is named, and the `if` that decides, with the random number
that it goes by and the line that seeds that by the rank.

One rank left a loop by a `break` or `return` below a branch on the rank, before a call that the others make in it, or
where all have as many rounds: that line is named, not what the condition asks, which the others never come to.

A rank left a loop before the others, whose bounds were recorded: the rounds of both are told. Without these, the calls
of both from the line in the loop are counted, where nothing else can have led that rank on; with the samples of each
rank's DataLoader where these differ, the line that gives each rank items of its own (`shards[rank::world]`), or what
each rank draws for itself: rows that a random mask keeps, from a generator that is not seeded alike.

A `continue`, an `if` or a caught error left out one call in a loop that has as many rounds on all ranks (DataLoaders
with a DistributedSampler, numbers in the program): it is named, with what its condition asks. Where the loop may have
fewer rounds, both are named as a choice.

An earlier call of one rank met another one of the same operation, from another line, and all later ones are alike but
for that one: then the ranks went apart there, and that pair is named, with what decided about it.

What to do: compare the lines that are named for the two sides; what they depend on must be the same on all ranks.

How it can be wrong: the majority may be the one that is wrong. Of two ranks it is undecidable which one is: both are
named. gloo's abort over the size of a message hits the receiver of the larger one, which need not be to blame.
Uneven sizes that torch allows (all_to_all, gather, scatter, lists of all_gather and reduce_scatter) are not reported.
Where gloo gets as many bytes as it expects, it completes silently: this is then a verdict although nothing died. If a
later call does not fit either, and a rank notices that, both numbers are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from pytracer._text import count_words, time_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.collectives.call_sites import calls_by_site, calls_of_group, differing_sites
from pytracer.analyze.collectives.ddp_settings import DifferingOption, differing_option, option_advice, option_words
from pytracer.analyze.collectives.description import at_place, call_words, place_of, span_words
from pytracer.analyze.collectives.differing_values import differing_values
from pytracer.analyze.collectives.matching import STOOD_NS, GroupMatch, Mismatch, Variant
from pytracer.analyze.collectives.mismatch_advice import Explained, explained
from pytracer.analyze.collectives.mismatch_sides import from_other_lines, two_sides
from pytracer.analyze.collectives.mismatch_words import LISTED, is_shortened, mismatch_summary
from pytracer.analyze.collectives.pairing import pairing_evidence
from pytracer.analyze.collectives.rank_branches import branch_head
from pytracer.analyze.collectives.rounds import (
    site_words,
)
from pytracer.analyze.deaths.attribution import abort_words, symptom_evidence, views_of, waited_ns
from pytracer.analyze.evidence.exceptions.handled import Handled, handled_in
from pytracer.analyze.naming import place_words
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Confidence, Evidence, PythonFrame


class _Found(msgspec.Struct, frozen=True):
    """The group, and where its ranks disagree."""

    match: GroupMatch
    mismatch: Mismatch
    handled: Handled | None = None
    """What the one rank was handling that was at another line by that."""
    option: DifferingOption | None = None
    """Of DDP, between the first ranks of the first two sides."""


class CollectiveMismatch:
    """Fires for the first disagreement of each process group."""

    id = "collective-mismatch"
    needs = ("COLLECTIVES", "GROUP")

    def check(self, job: JobView) -> tuple[Judgement[_Found], ...] | NoFinding:
        """One judgement per group."""
        groups = job.matches.groups
        judgements: list[Judgement[_Found]] = []
        for match in groups:
            if match.mismatch is not None:
                found = _Found(match, match.mismatch, _handled(job, match.mismatch), _option(job, match.mismatch))
                judgements.append(_judge(job, found, first=not judgements))
        if judgements:
            return tuple(judgements)
        compared = [match for match in groups if sum(bool(number) for number in match.last.values()) > 1]
        if not compared:
            return nothing_to_compare(job) or not_found("no two ranks called a collective in the same process group")
        most = max(number or 0 for match in compared for number in match.last.values())
        return not_found(
            f"in {count_words(len(compared), 'process group')} all ranks agree on operation, sizes, dtype, root and "
            f"reduce operation of every collective that can be compared (up to number {most})"
        )

    def describe(self, job: JobView, judgement: Judgement[_Found]) -> Description:
        """See Rule."""
        match, found, handled = judgement.found.match, judgement.found.mismatch, judgement.found.handled
        told = explained(job, match, found)
        if handled is not None and handled.block is not None:
            told = Explained(told.advice)  # what led the rank there is known: no loop or branch is the reason
        advice = _next(job, judgement.found, told)
        below = _below(job, found, advice) if told.cause is None else None
        summary = mismatch_summary(job, match, found, told, below)
        if judgement.found.option is not None:
            summary = f"{_option_words(judgement.found.option, found)}. {summary}"
        elif handled is not None:
            summary = f"{summary[:-1]}, where it was handling {handled.words}."
        return Description(
            summary,
            [
                *(_side(item, match) for item in found.variants[:LISTED]),
                handled.evidence if handled is not None else None,
                _cause(job, judgement.found, told),
                _more(found),
                _stood(job, judgement.found),
                *_uneven_lines(job, judgement.found),
                _values(job, found) if told.cause is None else None,
                pairing_evidence(job, match, [side.ranks[0] for side in found.variants], found.sequence_nr),
                _result(found),
                *_receivers(job, found),
                *symptom_evidence(job),
            ],
            advice,
            [
                "a third rank: which of the two is wrong is undecidable from what they passed"
                if judgement.undecided and not (told.names_who or told.uneven) and told.packing is None
                else None,
                f"the collectives of {span_words(match.unknown)}: no readable record" if match.unknown else None,
            ],
            behind=Behind(lines=told.places) if told.places else None,
        )


def _judge(job: JobView, item: _Found, *, first: bool) -> Judgement[_Found]:
    found, tie = item.mismatch, item.mismatch.odd is None and item.handled is None
    culprits = list(found.odd) if found.odd is not None else [rank for side in found.variants for rank in side.ranks]
    if item.handled is not None:
        culprits = [item.handled.view.process.rank or 0]
    confidence: Confidence = "likely" if found.absent and not tie else "certain"
    if found.field == "shape":
        confidence = "possible"
    views = views_of(job, sorted(culprits)) or list(job.views[:1])
    judgement = Judgement("collective-mismatch", confidence, tuple(views), item, undecided=tie)
    if found.field == "shape" or (found.silent and job.suspects):
        return replace(judgement, accompanies=found.field == "shape" or not first)
    op = "collective" if tie and found.field == "op" else found.variants[0].call.op
    what = f"{op} #{found.noticed}"
    did = dict(_called(found)) if tie else dict.fromkeys(culprits, _DID[found.field])
    standing = list(_open_in(job, item))
    waited = max((waited_ns(view, call) for view, call in standing), default=0)
    all_stand = {rank for side in found.variants for rank in side.ranks} <= {view.process.rank for view, _ in standing}
    stood = _NEVER_MET_NS if found.field == "op" and all_stand else STOOD_NS
    why = f"the ranks disagree in {what}"
    return account(job, judgement, why, did, waited_ns=waited, stood_ns=stood, absent=_went_on(job, item))


def _called(found: Mismatch) -> Iterator[tuple[int, str]]:
    """Of two sides that called other operations, none of which is outvoted: each rank, and the two calls."""
    sides = found.variants if found.field == "op" and len(found.variants) == 2 else ()
    for mine, theirs in zip(sides, reversed(sides), strict=True):
        words = f"called {mine.call.op}, {span_words(theirs.ranks)} {theirs.call.op}"
        yield from ((rank, words) for rank in mine.ranks)


def _went_on(job: JobView, item: _Found) -> list[ProcessView]:
    """Ranks whose own call had completed, with what is wrong in its result, where another rank aborted over it."""
    number = item.mismatch.noticed
    aborted = any(abort_words(view) is not None for view, _ in _open_in(job, item))
    return [
        view
        for side in item.mismatch.variants
        for view in views_of(job, side.ranks)
        if aborted and view.raised and _last_number(view, item.match.name) == number
    ]


def _last_number(view: ProcessView, group: str | None) -> int | None:
    last = max(calls_of_group(view, group), key=lambda call: call.sequence_nr, default=None)
    return last.sequence_nr if last is not None and last.state == "completed" else None


def _handled(job: JobView, found: Mismatch) -> Handled | None:
    """Where only one side was handling an exception: that is why it was at another line."""
    sides = [
        [item for view in views_of(job, side.ranks) if (item := handled_in(view, side.call)) is not None]
        for side in found.variants
    ]
    handling = [items for items in sides if items]
    return handling[0][0] if len(handling) == 1 else None


def _option(job: JobView, found: Mismatch) -> DifferingOption | None:
    sides = two_sides(job, found)
    return differing_option(*sides[0], *sides[1]) if sides is not None else None


def _option_words(option: DifferingOption, found: Mismatch) -> str:
    first, second = found.variants[:2]
    frame = option.frames[0]
    at = f" ({place_words(frame)})" if frame is not None and frame == option.frames[1] else ""
    return option_words(option, (first.ranks[0], second.ranks[0])) + at


def _next(job: JobView, item: _Found, told: Explained) -> str:
    sides = two_sides(job, item.mismatch)
    if item.option is not None and sides is not None:
        return option_advice(item.option, *sides)
    return told.advice if item.handled is None else _handled_advice(item.handled)


def _below(job: JobView, found: Mismatch, advice: str) -> str | None:
    """`the call of rank 0 is below `if rank == 0:` (train.py:21)`, where the advice says what to do about that."""
    for side in found.variants[:2]:
        for view in views_of(job, side.ranks[:1]):
            head = branch_head(view, side.call, advice)
            if head is not None:
                return f"the call of {span_words(side.ranks)} is {head}"
    return None


def _handled_advice(handled: Handled) -> str:
    block = handled.block
    waits = f"and {block} calls a collective, which" if block is not None else "so a collective behind it"
    return (
        f"Look at {handled.words} first: it took rank {handled.view.process.rank} out of step. The others do not know "
        f"of it, {waits} waits for them in vain. Let all ranks decide together where it is raised: all_reduce() a flag "
        "(MAX), and raise on all of them if it is set. Or call no collective in an except or finally block."
    )


def _stood(job: JobView, item: _Found) -> Evidence | None:
    """That two different calls were both open when their ranks were ended, or the recordings were read."""
    found, standing = item.mismatch, [*_open_in(job, item)]
    if found.field != "op" or found.noticed != found.sequence_nr or len(found.variants) != 2:
        return None
    ranks = {rank for side in found.variants for rank in side.ranks}
    lasted = min((waited_ns(view, call) for view, call in standing), default=0)
    if ranks != {view.process.rank for view, _ in standing} or lasted < STOOD_NS:
        return None
    words = f"neither collective had completed {time_words(lasted)} later: the ranks wait for each other"
    return Evidence("collective-state", words, sequence_nr=found.sequence_nr, ranks=sorted(ranks))


def _open_in(job: JobView, item: _Found) -> Iterator[tuple[ProcessView, Collective]]:
    """The ranks that stood in it when they ended, and their calls."""
    for rank, calls in item.match.open.items():
        call = calls.get(item.mismatch.noticed)
        if call is not None and call.state != "failed":
            yield from ((view, call) for view in views_of(job, [rank]))


_NEVER_MET_NS = 1_000_000_000  # all stand in another operation than the others: no longer wait would have ended it
_DID = {
    "op": "called another collective than the others",
    "root": "named another root than the others",
    "reduce_op": "asked for another reduce operation than the others",
    "dtype": "passed another dtype than the others",
    "size": "passed another size than the others",
    "shape": "passed another shape than the others",
}


def _uneven_lines(job: JobView, item: _Found) -> Iterator[Evidence]:
    """The lines from which two sides had called a different number of times before: there they went apart."""
    found = item.mismatch
    if not from_other_lines(found):
        return
    sides = views_of(job, [side.ranks[0] for side in found.variants[:2]])
    if len(sides) < 2:
        return
    counts = [calls_by_site(view, item.match.name, found.sequence_nr) for view in sides]
    for site in differing_sites(sides[0], sides[1], item.match.name, found.sequence_nr)[:LISTED]:
        said = [
            f"{span_words([view.process.rank or 0])} {count_words(count[site] if count else 0, 'time')}"
            for view, count in zip(sides, counts, strict=True)
        ]
        line = site_words(site)
        yield Evidence(
            "call-site",
            f"before that, {line} had called collectives on {' and '.join(said)}",
            python=PythonFrame(file=site[0], function=site[1], line=site[2]),
            ranks=[view.process.rank or 0 for view in sides],
            counts=[count[site] if count else 0 for count in counts],
        )


def _values(job: JobView, found: Mismatch) -> Evidence | None:
    """What is different on two sides."""
    sides = views_of(job, [side.ranks[0] for side in found.variants[:2]])
    return differing_values(*sides) if len(sides) == 2 else None


def _side(item: Variant, match: GroupMatch) -> Evidence:
    call = call_words(item.call, match)
    text = f"{span_words(item.ranks)}: {call}{at_place(item.call)}, {item.call.state}"
    return Evidence(
        "collective-call",
        text,
        ranks=list(item.ranks),
        group=match.name,
        op=item.call.op,
        sequence_nr=item.call.sequence_nr,
        state=item.call.state,
        call=call,
        python=place_of(item.call),
    )


def _cause(job: JobView, item: _Found, told: Explained) -> Evidence | None:
    """The whole cause, of which the headline has the brief form."""
    if told.cause is None or not is_shortened(job, item.match, item.mismatch, told):
        return None
    ranks = sorted(rank for side in item.mismatch.variants for rank in side.ranks)
    return Evidence("source-line", told.cause, ranks=ranks)


def _more(found: Mismatch) -> Evidence | None:
    left = len(found.variants) - LISTED
    return Evidence("collective-state", f"... and {left} more kinds of call", count=left) if left > 0 else None


def _result(found: Mismatch) -> Evidence | None:
    if not found.succeeded:
        return None
    call = found.variants[0].call
    return Evidence(
        "collective-state", _result_words(found), group=call.group, op=call.op, sequence_nr=call.sequence_nr
    )


def _result_words(found: Mismatch) -> str:
    sizes = {item.call.nbytes for item in found.variants}
    if found.field == "dtype" and len(sizes) == 1:
        return "same byte size: gloo completes silently, and each rank reads the bytes of the others as its own dtype"
    if found.field == "size" and found.variants[0].call.op == "broadcast":
        return (
            "a broadcast with a smaller source completes silently: the rest of the receivers' tensors stays as it was"
        )
    if found.field == "reduce_op":
        return "the backend does not compare reduce operations: parts of the result are reduced differently"
    return "no rank received an error"


def _receivers(job: JobView, found: Mismatch) -> list[Evidence]:
    """gloo aborts the receiver of the larger message."""
    if found.field not in ("size", "dtype", "op"):
        return []
    said = []
    for view in job.views:
        words = abort_words(view)
        if words is not None and view.process.rank is not None:
            innocent = found.odd is not None and view.process.rank not in found.odd
            said.append(
                Evidence(
                    "rank-state",
                    f"rank {view.process.rank} aborted, {words}, as the receiver of the larger message"
                    f"{': it is not to blame' if innocent else ''}",
                    rank=view.process.rank,
                    pid=view.process.snapshot.pid,
                    text=words,
                )
            )
    return said
