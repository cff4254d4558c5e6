"""collective-mismatch: ranks called different collectives, or the same one with different arguments.

What: at the same sequence number of a process group, ranks differ in operation, root, reduce operation, dtype, number
of elements or shape. With three ranks or more the majority is taken to be right, and the outvoted ranks are named.

Why it happens: a branch that depends on the rank, data that only some ranks have, a model or dtype that differs between
ranks, a checkpoint or library version that is not the same everywhere.

An exception on one rank, whose `except` or `finally` then calls a collective, while the others go on: it is named,
where that call failed.

What to do: compare the lines that are named for the two sides; what they depend on must be the same on all ranks.

How it can be wrong: the majority may be the one that is wrong. Of two ranks it is undecidable which one is: both are
named. gloo's abort over the size of a message hits the receiver of the larger one, which need not be to blame.
Uneven sizes that torch allows (all_to_all, gather, scatter, lists of all_gather and reduce_scatter) are not reported.
Where gloo gets as many bytes as it expects, it completes silently: this is then a verdict although nothing died.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytracer._text import capital, count_words
from pytracer.analyze.collectives.call_sites import Site, calls_by_site, differing_sites, site_of
from pytracer.analyze.collectives.ddp_settings import DifferingOption, differing_option, option_advice, option_words
from pytracer.analyze.collectives.description import at_place, call_words, group_words, place_of, span_words, value_of
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.matching import GroupMatch, Mismatch, Variant
from pytracer.analyze.collectives.own_groups import own_group_advice
from pytracer.analyze.collectives.pairing import pairing_evidence
from pytracer.analyze.collectives.parting import find_parting, way_to
from pytracer.analyze.collectives.rank_branches import branch_advice, data_branch_advice
from pytracer.analyze.collectives.rank_value_words import differing_advice
from pytracer.analyze.collectives.rounds import (
    calls_of_line,
    calls_within_steps,
    counted_words,
    order_words,
    rounds_words,
    site_words,
    skipped_words,
)
from pytracer.analyze.collectives.sizes import left_out_advice, size_advice
from pytracer.analyze.deaths.attribution import abort_words, symptom_evidence, views_of, waited_ns
from pytracer.analyze.evidence.handled import Handled, handled_in
from pytracer.analyze.evidence.program_syntax import called_name
from pytracer.analyze.naming import place_words
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Module
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Confidence, Evidence, PythonFrame

_LISTED = 4
_ADVICE_LINES = (
    "Compare the two lines, and what decides how often each is reached: a rank skipped a collective, or called one "
    "more (a `continue`, an early stop, a failed batch), and the ranks are out of step since."
)
_SHARDED = ("all_gather_into_tensor", "reduce_scatter_tensor")
_ADVICE_SHARDED = (
    " What communicates inside must run on all ranks: with a sharded model (FSDP) forward, backward, clip_grad_norm_() "
    "and state_dict()."
)
_DDP = re.compile(r"/torch/nn/parallel/distributed\.py$")
_BARRIERS = ("barrier", "monitored_barrier")
_ADVICE_BARRIER = (
    " If the barrier comes after the loop of the other line, the ranks had different numbers of batches: give all the "
    "same number, or use join()."
)
_ADVICE_UNITS = (
    "The ranks had gradients of different parameters: a branch that depends on the data (experts, optional heads, "
    "frozen layers) used other layers on each. Use all parameters of a sharded unit on every rank in every step (add "
    "`0 * p.sum()` of unused ones), or wrap such layers as units of their own; else the model itself differs by rank: "
    "compare the names and shapes of its parameters."
)
_ADVICE_BROADCAST = (
    " The broadcast is the one of buffers in each forward of a DistributedDataParallel model in training: outside of "
    "the training loop call `model.module(...)`, or eval() it with broadcast_buffers=False."
)
_OF_OBJECTS = ("broadcast_object_list", "send_object_list", "recv_object_list")
_GATHERS = ("all_gather", "all_gather_into_tensor")
_ADVICE_GATHER = (
    " A last batch that is smaller on one rank: pad it, or drop_last=True; all_gather_object() takes any size."
)
_ADVICE = {
    "op": "Compare the two lines: a branch on the rank or on its data made them call different collectives.",
    "root": "Pass the same root on all ranks: it must not depend on the rank.",
    "reduce_op": "Pass the same reduce operation on all ranks.",
    "dtype": "Find out why the tensor has another dtype there: autocast, a checkpoint, a conversion on one rank only, "
    "or data that one rank does not have (torch.tensor([]) is float32). Pass the dtype where the tensor is made.",
    "size": "Find out why the tensor has another size there: uneven data, another model or vocabulary on that rank, "
    "or tensors that the ranks go through in different orders (a set of str has another order in each process).",
    "shape": "Find out why the tensor has another shape there, such as one that is transposed.",
}


@dataclass(frozen=True)
class _Found:
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
        summary = _summary(job, match, found)
        if judgement.found.option is not None:
            summary = f"{_option_words(judgement.found.option, found)}. {summary}"
        elif handled is not None:
            summary = f"{summary[:-1]}, where it was handling {handled.words}."
        return Description(
            summary,
            [
                *(_side(item, match) for item in found.variants[:_LISTED]),
                handled.evidence if handled is not None else None,
                _more(found),
                *_uneven_lines(job, judgement.found),
                pairing_evidence(job, match, [side.ranks[0] for side in found.variants], found.sequence_nr),
                _result(found),
                *_receivers(job, found),
                *symptom_evidence(job),
            ],
            _next(job, judgement.found),
            [
                "a third rank: which of the two is wrong is undecidable from what they passed"
                if judgement.undecided
                else None,
                f"the collectives of {span_words(match.unknown)}: no readable record" if match.unknown else None,
            ],
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
    what = f"{found.variants[0].call.op} #{found.sequence_nr}"
    did = {} if tie else dict.fromkeys(culprits, _DID[found.field])
    waited = max((waited_ns(view, call) for view, call in _open_in(job, item)), default=0)
    return account(job, judgement, f"the ranks disagree in {what}", did, waited_ns=waited)


def _handled(job: JobView, found: Mismatch) -> Handled | None:
    """Where only one side was handling an exception: that is why it was at another line."""
    sides = [
        [item for view in views_of(job, side.ranks) if (item := handled_in(view, side.call)) is not None]
        for side in found.variants
    ]
    handling = [items for items in sides if items]
    return handling[0][0] if len(handling) == 1 else None


def _option(job: JobView, found: Mismatch) -> DifferingOption | None:
    sides = _two_sides(job, found)
    return differing_option(*sides[0], *sides[1]) if sides is not None else None


def _two_sides(
    job: JobView, found: Mismatch
) -> tuple[tuple[ProcessView, Collective], tuple[ProcessView, Collective]] | None:
    """The first rank of each of the first two, with its call."""
    first, second = found.variants[:2]
    views = views_of(job, [first.ranks[0], second.ranks[0]])
    return ((views[0], first.call), (views[1], second.call)) if len(views) > 1 else None


def _option_words(option: DifferingOption, found: Mismatch) -> str:
    first, second = found.variants[:2]
    frame = option.frames[0]
    at = f" ({place_words(frame)})" if frame is not None and frame == option.frames[1] else ""
    return option_words(option, (first.ranks[0], second.ranks[0])) + at


def _next(job: JobView, item: _Found) -> str:
    sides = _two_sides(job, item.mismatch)
    if item.option is not None and sides is not None:
        return option_advice(item.option, *sides)
    return _advice(job, item) if item.handled is None else _handled_advice(item.handled)


def _handled_advice(handled: Handled) -> str:
    return (
        f"Look at {handled.words} first: it took rank {handled.view.process.rank} out of step. The others do not know "
        "of it, so a collective in an except or finally block waits for them in vain: let the exception end the rank, "
        "or catch it on all ranks."
    )


def _open_in(job: JobView, item: _Found) -> Iterator[tuple[ProcessView, Collective]]:
    """The ranks that stood in it when they ended, and their calls."""
    for rank, calls in item.match.open.items():
        call = calls.get(item.mismatch.sequence_nr)
        if call is not None and call.state != "failed":
            yield from ((view, call) for view in views_of(job, [rank]))


_DID = {
    "op": "called another collective than the others",
    "root": "named another root than the others",
    "reduce_op": "asked for another reduce operation than the others",
    "dtype": "passed another dtype than the others",
    "size": "passed another size than the others",
    "shape": "passed another shape than the others",
}


def _summary(job: JobView, match: GroupMatch, found: Mismatch) -> str:
    where = f"collective {found.sequence_nr} of {group_words(match)}"
    if found.field != "op":
        where = f"{found.variants[0].call.op} ({where})"
    end = _silence(found)
    if _from_other_lines(found):
        sides = "; ".join(
            f"{span_words(item.ranks)} {_call_words(item)}{at_place(item.call)}" for item in found.variants[:_LISTED]
        )
        return f"Ranks were at different lines in {where}: {sides}{end}."
    right, wrong = found.variants[0], found.variants[1]
    if found.odd is None:
        sides, line = _sides(job, match, found)
        return f"Ranks disagree in {where}{line}: {sides}{end}."
    if len(found.variants) > 2:
        return (
            f"{capital(span_words(found.odd))} disagree with {span_words(right.ranks)} in {where}: "
            f"{_passed(right, found, match)}{end}."
        )
    wrong_words, right_words = (_passed(item, found, match) + _inside(job, item, found) for item in (wrong, right))
    place = at_place(wrong.call)
    if found.field == "op":
        return f"{capital(wrong_words)}{place} where {right_words} ({where}){end}."
    return f"{capital(wrong_words)} in {where}{place}, where {right_words}{end}."


def _advice(job: JobView, item: _Found) -> str:
    found = item.mismatch
    if _from_other_lines(found):
        return _counted(job, item) or _ADVICE_LINES
    sharded = found.field == "op" and any(item.call.op.startswith(_SHARDED) for item in found.variants)
    ops = {item.call.op for item in found.variants}
    more = _ADVICE_SHARDED if sharded else ""
    if found.field == "size" and ops <= set(_GATHERS):
        more += _ADVICE_GATHER
    if found.field == "size" and ops & set(_SHARDED):
        return _ADVICE_UNITS
    if found.field == "size":
        known = _of_objects(job, found) or _of_order(job, found) or _of_size(job, item)
        if known is not None:
            return known
    if found.field == "root":
        known = _of_root(job, item)
        if known is not None:
            return known
    if found.field == "op":
        apart = _threads_advice(item, views_of(job, [side.ranks[0] for side in found.variants[:2]]))
        if apart is not None:
            return apart
        counted = _counted(job, item)
        if counted is None:
            return _ADVICE["op"] + (_ADVICE_BARRIER if ops.intersection(_BARRIERS) else "") + more
        return counted + (_ADVICE_BROADCAST if _has_broadcast(job, found) else "")
    return _ADVICE[found.field] + more


def _of_root(job: JobView, item: _Found) -> str | None:
    """Where the numbers of two ranks come from."""
    sides = _two_sides(job, item.mismatch)
    if sides is None:
        return None
    values = [str(value_of(call, "root", item.match)) for _, call in sides]
    return differing_advice(sides, ("src", "dst"), (values[0], values[1]))


def _of_size(job: JobView, item: _Found) -> str | None:
    """A call that one rank left out, or what the size comes from."""
    sides = _two_sides(job, item.mismatch)
    if sides is None or site_of(sides[0][1]) != site_of(sides[1][1]):
        return None
    number = item.mismatch.sequence_nr
    names = [
        name
        for view, _ in sides
        for last in view.collectives
        if last.sequence_nr == number and last.group == item.match.name and last.buffer is not None
        for name in last.buffer.names or ()
    ]
    return left_out_advice(*sides) or size_advice(*sides, names)


def _of_objects(job: JobView, found: Mismatch) -> str | None:
    """Lists of objects: the first message of such a call has the size of each object, so that its length is theirs."""
    if {side.call.dtype for side in found.variants} != {"int64"}:
        return None
    for side, view in zip(found.variants, views_of(job, [side.ranks[0] for side in found.variants]), strict=False):
        frame = place_of(side.call)
        calls = calls_of_line(view.process.snapshot, frame) if frame is not None else ()
        name = next((name for item in calls if (name := called_name(item)) in _OF_OBJECTS), None)
        if name is None:
            return None
    said = " and ".join(f"{item.call.numel} on {span_words(item.ranks)}" for item in found.variants[:2])
    longest = max(item.call.numel or 0 for item in found.variants)
    return (
        f"The lists that are given to {name}() have other lengths: {said}. It fills the list of the receivers, which "
        f"must have as many places ([None] * {longest}) as the sender has objects; or send one object, a tuple or dict."
    )


def _of_order(job: JobView, found: Mismatch) -> str | None:
    """A loop around the call that goes through its tensors in another order on each rank."""
    for side, view in zip(found.variants, views_of(job, [side.ranks[0] for side in found.variants]), strict=False):
        frame = place_of(side.call)
        words = order_words(view.process.snapshot, frame) if frame is not None else None
        if words is not None:
            return words
    return None


def _has_broadcast(job: JobView, found: Mismatch) -> bool:
    """Whether one side is in the broadcast of buffers of a DDP forward; that of bucket indices is of int32."""
    for side in found.variants:
        call = side.call
        if call.op != "broadcast" or call.dtype == "int32" or call.python is None or not _DDP.search(call.python.file):
            continue
        modules = [fact.data for view in views_of(job, side.ranks) for fact in view.process.snapshot.recorded(Module)]
        if not modules or any(item.role == "buffer" for module in modules for item in module.tensors):
            return True
    return False


def _counted(job: JobView, item: _Found) -> str | None:
    """A branch on the rank around one of the calls; else how often each rank had called from the two lines."""
    found = item.mismatch
    sides = views_of(job, [side.ranks[0] for side in found.variants[:2]])
    for side, view in zip(found.variants, sides, strict=False):
        below = own_group_advice(job, view, side) or branch_advice(view, side.call, library_call(view, side.call))
        if below is not None:
            return below
    parting = find_parting(sides[0], found.variants[0].call, sides[1], found.variants[1].call) if sides[1:] else None
    parted = parting.advice if parting is not None else None
    if parting is not None and not parting.inferred:
        return parted
    sites = [site for side in found.variants[:2] if (site := site_of(side.call)) is not None]
    counts = [count for view in sides if (count := calls_by_site(view, item.match.name)) is not None]
    if len(sites) < 2 or len(counts) < 2 or sites[0] == sites[1]:
        return parted
    often, rare = (
        (0, 1) if sum(count[sites[0]] for count in counts) > sum(count[sites[1]] for count in counts) else (1, 0)
    )
    if not all(count[sites[often]] for count in counts):
        return parted or _only_one(found, sides)  # each rank has a line of its own: a branch
    said, other = (
        counted_words(site, [(view.process.rank or 0, count[site]) for count, view in zip(counts, sides, strict=True)])
        for site in (sites[often], sites[rare])
    )
    way = way_to(sides[often], found.variants[often].call)
    steps = calls_within_steps(sides[0], sides[1], item.match.name, sites[often])
    if isinstance(steps, tuple):
        return _uneven_step(sites[often], steps, sides)
    rounds = said + rounds_words(sides[often].process.snapshot, way, sites[often], steps)
    if parting is not None:
        return rounds
    if all(count[sites[rare]] for count in counts):
        behind = 0 if counts[0][sites[rare]] < counts[1][sites[rare]] else 1
        known = skipped_words(sides[rare].process.snapshot, way_to(sides[rare], found.variants[rare].call), sites[rare])
        if known is not None and counts[0][sites[rare]] != counts[1][sites[rare]]:
            return (
                f"{other}: see whether {known} left it out on rank {sides[behind].process.rank} alone, by data of its "
                "own. All ranks must take part in it in each round, with zeros or another neutral value, or all leave "
                "out the same round (all_reduce() the flag)."
            )
        return (
            f"{other}: see whether rank {sides[often].process.rank} "
            "skips it (an early return, a `continue`, an error that is caught), by data of its own: all ranks must "
            f"take part, with a neutral value. {rounds}"
        )
    only = f"rank {sides[rare].process.rank}"
    return (
        f"{rounds} If only {only} comes to {site_words(sites[rare])} (a branch on the rank or on its data), take it "
        "out of that branch, or call it on all ranks."
    )


def _uneven_step(site: Site, steps: tuple[int, int, int], sides: Sequence[ProcessView]) -> str:
    step, *counts = steps
    said = " and ".join(f"{count} on rank {view.process.rank}" for count, view in zip(counts, sides, strict=True))
    return (
        f"In step {step}, {site_words(site)} called {said}: not the number of steps differs, but what one calls. "
        "Compare what the ranks do there: options of DistributedDataParallel, layers and frozen parameters of the "
        "model, batches in a step (accumulation)."
    )


def _threads_advice(item: _Found, sides: Sequence[ProcessView]) -> str | None:
    """Where each rank calls the two lines' collectives from two threads of its own: their order is chance."""
    sites = [site for side in item.mismatch.variants[:2] if (site := site_of(side.call)) is not None]
    if len(sites) < 2 or sites[0] == sites[1] or len(sides) < 2:
        return None
    for view in sides:
        own = [call for call in view.process.snapshot.collectives if call.group == item.match.name]
        threads = [{call.tid for call in own if site_of(call) == site} for site in sites]
        if not all(threads) or threads[0] & threads[1]:
            return None
    return (
        f"{site_words(sites[0])} and {site_words(sites[1])} run in two threads of each rank, and call collectives of "
        "one process group: which comes first is chance. Give the thread a group of its own "
        "(torch.distributed.new_group), or join() it before the other collective."
    )


def _only_one(found: Mismatch, sides: Sequence[ProcessView]) -> str | None:
    """A condition around the line of one rank, from which the other never called a collective."""
    for side, view, other in zip(found.variants, sides, reversed(sides), strict=False):
        below = data_branch_advice(view, side.call, f"rank {other.process.rank}")
        if below is not None:
            return below
    return None


def _sides(job: JobView, match: GroupMatch, found: Mismatch) -> tuple[str, str]:
    """What each side passed, with its line where these differ; and the line where all are at the same one."""
    items = found.variants[:_LISTED]
    alone = [_alone(job, match, item, found) for item in items]
    alone = ["" for _ in items] if all(alone) else alone  # each has a line of its own
    sides = [
        (_passed(item, found, match) + _inside(job, item, found), at_place(item.call) + only)
        for item, only in zip(items, alone, strict=True)
    ]
    lines = {line for _, line in sides}
    if len(lines) == 1:
        return "; ".join(words for words, _ in sides), lines.pop()
    return "; ".join(words + line for words, line in sides), ""


def _inside(job: JobView, item: Variant, found: Mismatch) -> str:
    """` in Tensor.backward()`: what of a library called it there."""
    views = views_of(job, item.ranks[:1]) if found.field == "op" else []
    name = library_call(views[0], item.call) if views else None
    return f" in {name}()" if name is not None else ""


def _alone(job: JobView, match: GroupMatch, item: Variant, found: Mismatch) -> str:
    """That the other of two ranks has called none from that line, of what always calls one."""
    inside = _inside(job, item, found)
    if found.field != "op" or len(found.variants) != 2 or inside.endswith(("forward()", "backward()", "step()")):
        return ""
    site = site_of(item.call)
    other = next(side for side in found.variants if side is not item)
    counts = [calls_by_site(view, match.name) for view in views_of(job, other.ranks)]
    if site is None or not counts or any(count is None or count[site] for count in counts):
        return ""
    return f", from where {span_words(other.ranks)} called none"


def _from_other_lines(found: Mismatch) -> bool:
    """Whether ranks passed other sizes or dtypes because they were at other lines: then they are out of step."""
    sites = [site_of(item.call) for item in found.variants]
    return found.field in ("size", "dtype", "reduce_op") and all(sites) and len(set(sites)) == len(sites)


def _call_words(item: Variant) -> str:
    """`in all_reduce of 4680 elements`."""
    return f"in {item.call.op} of {count_words(item.call.numel or 0, 'element')}"


def _uneven_lines(job: JobView, item: _Found) -> Iterator[Evidence]:
    """The lines from which two sides had called a different number of times before: there they went apart."""
    found = item.mismatch
    if not _from_other_lines(found):
        return
    sides = views_of(job, [side.ranks[0] for side in found.variants[:2]])
    if len(sides) < 2:
        return
    counts = [calls_by_site(view, item.match.name, found.sequence_nr) for view in sides]
    for site in differing_sites(sides[0], sides[1], item.match.name, found.sequence_nr)[:_LISTED]:
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


def _passed(item: Variant, found: Mismatch, match: GroupMatch) -> str:
    """`rank 2 passed int32`."""
    value, ranks = value_of(item.call, found.field, match), span_words(item.ranks)
    if found.field == "op":
        return f"{ranks} called {value}"
    if found.field == "root":
        return f"{ranks} named rank {value} as root"
    if found.field == "reduce_op":
        return f"{ranks} asked for {value}"
    if found.field == "size" and len({other.call.numel for other in found.variants}) == 1:
        return f"{ranks} expected {count_words(item.call.output_numel or 0, 'element')} in all"
    if found.field == "size":
        return f"{ranks} passed {count_words(item.call.numel or 0, 'element')} {list(item.call.sizes)}"
    return f"{ranks} passed {value}"


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


def _more(found: Mismatch) -> Evidence | None:
    left = len(found.variants) - _LISTED
    return Evidence("collective-state", f"... and {left} more kinds of call", count=left) if left > 0 else None


def _silence(found: Mismatch) -> str:
    """What a mismatch means that no rank noticed."""
    if not found.silent or found.field == "shape":
        return ""
    return "; every rank's call reported success, and the data is corrupt"


def _result(found: Mismatch) -> Evidence | None:
    if not found.silent:
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
        if words is not None and view.process.rank is not None and found.odd is not None:
            innocent = view.process.rank not in found.odd
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
