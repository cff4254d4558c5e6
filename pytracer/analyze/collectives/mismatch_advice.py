"""What to do about ranks that called different collectives, or passed different values: by what the sources show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytracer.analyze.collectives.beside_join import beside_join
from pytracer.analyze.collectives.call_sites import Site, calls_by_site, site_of
from pytracer.analyze.collectives.description import place_of, span_words, value_of
from pytracer.analyze.collectives.differing_bounds import equal_heads
from pytracer.analyze.collectives.fresh_losses import FreshLoss, fresh_loss
from pytracer.analyze.collectives.left_out_calls import LeftOut, left_out
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.matching import GroupMatch, Mismatch
from pytracer.analyze.collectives.own_groups import own_group_advice
from pytracer.analyze.collectives.packed_gradients import Packing, packing_of
from pytracer.analyze.collectives.parting import Parting, find_parting
from pytracer.analyze.collectives.rank_branches import branch_advice, data_branch_advice
from pytracer.analyze.collectives.rank_value_words import differing_advice
from pytracer.analyze.collectives.rounds import (
    calls_of_line,
    calls_within_steps,
    counted_words,
    key_order_words,
    order_words,
    rounds_words,
    site_words,
    skipped_words,
)
from pytracer.analyze.collectives.sizes import cause_words, size_advice
from pytracer.analyze.collectives.units_apart import UnitsApart, units_apart
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Module
from pytracer.decode.types.snapshot import Collective

Sides = tuple[tuple[ProcessView, Collective], tuple[ProcessView, Collective]]
_ADVICE_LINES = (
    "Compare the two lines, and count on all ranks how often each is reached: with other counts, one rank left out a "
    "collective before, or called one more (a `continue`, an early stop, a failed batch); with equal ones, both lines "
    "are meant to meet, and what they pass differs."
)
_ADVICE_ONE_LINE = (
    "The ranks were at one line, and what calls the collectives there went another way on each. Print what is passed "
    "to it on all ranks, the names and shapes of the model's parameters, and which of them have gradients: the first "
    "difference in that is where they went apart."
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
    "At that number the ranks communicated for different parameters. Print the names and shapes of the model's "
    "parameters on all ranks: if they differ, so do the models. If not, print in each step which sharded units run and "
    "which parameters have a gradient: a branch (experts, optional heads, frozen layers) may use other layers on each "
    "rank. Use all parameters of a unit on every rank in every step (add `0 * p.sum()` of unused ones), or wrap such "
    "layers as units of their own."
)
_ADVICE_BROADCAST = (
    " The broadcast is the one of buffers (of BatchNorm) in each forward of a DistributedDataParallel model, after "
    "eval() as well: outside of the training loop call `model.module(...)`, or make it with broadcast_buffers=False."
)
_OF_OBJECTS = ("broadcast_object_list", "send_object_list", "recv_object_list")
_GATHERS = ("all_gather", "all_gather_into_tensor")
_ADVICE_GATHER = (
    " If it is a last batch that is smaller on one rank: pad it, or drop_last=True; all_gather_object() takes any size."
)
_ADVICE = {
    "op": "Compare the two lines: what led the ranks to different calls is not recorded. Print before both, on all "
    "ranks, the round and what is called next: the first difference in that is where they went apart.",
    "root": "Pass the same root on all ranks: it must not depend on the rank.",
    "reduce_op": "Pass the same reduce operation on all ranks.",
    "dtype": "Find out why the tensor has another dtype there: autocast, a checkpoint, a conversion on one rank only, "
    "or data that one rank does not have (torch.tensor([]) is float32). Pass the dtype where the tensor is made.",
    "size": "Find out why the tensor has another size there, and print what it is made of on all ranks: uneven data, "
    "another model or vocabulary on that rank, or tensors in another order (a set of str has one of its own in each "
    "process) have that look.",
    "shape": "Find out why the tensor has another shape there, such as one that is transposed.",
}


def two_sides(job: JobView, found: Mismatch) -> Sides | None:
    """The first rank of each of the first two, with its call."""
    first, second = found.variants[:2]
    views = views_of(job, [first.ranks[0], second.ranks[0]])
    return ((views[0], first.call), (views[1], second.call)) if len(views) > 1 else None


def from_other_lines(found: Mismatch) -> bool:
    """Whether ranks passed other sizes or dtypes because they were at other lines: then they are out of step."""
    sites = [site_of(item.call) for item in found.variants]
    return found.field in ("size", "dtype", "reduce_op") and all(sites) and len(set(sites)) == len(sites)


def mismatch_advice(job: JobView, match: GroupMatch, found: Mismatch) -> str:
    """By what differs, and by what the program's source shows of it."""
    sides = two_sides(job, found)
    joined = beside_join(sides, match, found.sequence_nr) if sides is not None else None
    if joined is not None:
        return joined
    units = _units_apart(sides)
    if units is not None:
        return units.advice
    if from_other_lines(found):
        return _counted(job, match, found) or _ADVICE_LINES
    sharded = found.field == "op" and any(item.call.op.startswith(_SHARDED) for item in found.variants)
    ops = {item.call.op for item in found.variants}
    more = _ADVICE_SHARDED if sharded else ""
    if found.field == "size" and ops <= set(_GATHERS):
        more += _ADVICE_GATHER
    if found.field == "size" and ops & set(_SHARDED) and not _is_called_directly(job, found):
        return _ADVICE_UNITS
    if found.field == "size":
        known = _of_objects(job, found) or _of_order(job, found) or _of_size(job, match, found) or _of_keys(job, found)
        if known is not None:
            return known
    if found.field == "root":
        known = _of_root(job, match, found)
        if known is not None:
            return known
    if found.field == "op":
        apart = _threads_advice(match, found, views_of(job, [side.ranks[0] for side in found.variants[:2]]))
        if apart is not None:
            return apart
        counted = _counted(job, match, found)
        if counted is None:
            one_line = len({site_of(item.call) for item in found.variants[:2]}) == 1
            return (
                (_ADVICE_ONE_LINE if one_line else _ADVICE["op"])
                + (_ADVICE_BARRIER if ops.intersection(_BARRIERS) else "")
                + more
            )
        return counted + (_ADVICE_BROADCAST if _has_broadcast(job, found) else "")
    return _ADVICE[found.field] + more


def _units_apart(sides: Sides | None) -> UnitsApart | None:
    found = [Side(view, way_to(view, call), call) for view, call in sides or ()]
    return units_apart(found[0], found[1]) if found else None


def _is_called_directly(job: JobView, found: Mismatch) -> bool:
    """Whether the program's own line calls the operation, and not FSDP for a unit of its own."""
    sides = two_sides(job, found)
    for view, call in sides if sides is not None else ():
        frame = place_of(call)
        on_line = calls_of_line(view.process.snapshot, frame) if frame is not None else ()
        if any(called_name(item) == call.op for item in on_line):
            return True
    return False


def _of_root(job: JobView, match: GroupMatch, found: Mismatch) -> str | None:
    """Where the numbers of two ranks come from."""
    sides = two_sides(job, found)
    if sides is None:
        return None
    values = [str(value_of(call, "root", match)) for _, call in sides]
    return differing_advice(sides, ("src", "dst"), (values[0], values[1]))


def _of_size(job: JobView, match: GroupMatch, found: Mismatch) -> str | None:
    """A call that one rank left out, or what the size comes from."""
    sides = two_sides(job, found)
    if sides is None or site_of(sides[0][1]) != site_of(sides[1][1]):
        return None
    number = found.sequence_nr
    names = [
        name
        for view, _ in sides
        for last in view.collectives
        if last.sequence_nr == number and last.group == match.name and last.buffer is not None
        for name in last.buffer.names or ()
    ]
    packing, without = packing_of(*sides), left_out(*sides)
    known = packing.advice if packing is not None else without.advice if without is not None else None
    return known if known is not None else size_advice(*sides, names, len(match.ranks))


def packing_cause(job: JobView, match: GroupMatch, found: Mismatch) -> Packing | None:
    """The line that packs only gradients which are not None, where the advice says the same."""
    sides = two_sides(job, found) if found.field == "size" else None
    packing = packing_of(*sides) if sides is not None else None
    return packing if packing is not None and packing.advice == mismatch_advice(job, match, found) else None


def size_cause(job: JobView, match: GroupMatch, found: Mismatch) -> str | None:
    """The line with the rank that the size comes from, where the advice says the same."""
    sides = two_sides(job, found)
    words = cause_words(*sides, len(match.ranks)) if sides is not None else None
    said = words is not None and words.removeprefix("it ") in mismatch_advice(job, match, found)
    return words if said else None


def parting_cause(job: JobView, match: GroupMatch, found: Mismatch) -> str | None:
    """The loop that one rank left, a value that only one has, a call that it left out: what the advice says, too."""
    sides = two_sides(job, found) if found.field in ("op", "size") or from_other_lines(found) else None
    if sides is None:
        return None
    apart = found.field == "op" or from_other_lines(found)
    ways: tuple[Parting | LeftOut | UnitsApart | None, ...] = (
        _units_apart(sides),
        find_parting(*sides[0], *sides[1]) if apart else None,
        left_out(*sides),
    )
    advice = mismatch_advice(job, match, found)
    return next((item.subject for item in ways if item is not None and item.advice in advice), None)


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


def _of_keys(job: JobView, found: Mismatch) -> str | None:
    """A loop around the call over a dict, whose keys may have come in another order."""
    sides = two_sides(job, found)
    if sides is None or site_of(sides[0][1]) != site_of(sides[1][1]):
        return None
    view, call = sides[0]
    frame = place_of(call)
    return key_order_words(view.process.snapshot, frame) if frame is not None else None


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


def _counted(job: JobView, match: GroupMatch, found: Mismatch) -> str | None:
    """A branch on the rank around one of the calls; else how often each rank had called from the two lines."""
    sides = views_of(job, [side.ranks[0] for side in found.variants[:2]])
    parting = find_parting(sides[0], found.variants[0].call, sides[1], found.variants[1].call) if sides[1:] else None
    if parting is not None and parting.one_rank:
        return parting.advice
    for side, view in zip(found.variants, sides, strict=False):
        below = own_group_advice(job, view, side) or branch_advice(view, side.call, library_call(view, side.call))
        if below is not None:
            return below
    seen = parting is None or parting.inferred or parting.skipped
    calls = [side.call for side in found.variants[:2]]
    without = left_out((sides[0], calls[0]), (sides[1], calls[1])) if sides[1:] and seen else None
    if without is not None:
        return without.advice
    parted = parting.advice if parting is not None else None
    if parting is not None and not parting.inferred:
        return parted
    fresh = loss_without_parameters(job, match, found)
    if fresh is not None:
        return fresh.advice
    sites = [site for side in found.variants[:2] if (site := site_of(side.call)) is not None]
    counts = [count for view in sides if (count := calls_by_site(view, match.name)) is not None]
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
    steps = calls_within_steps(sides[0], sides[1], match.name, sites[often])
    if isinstance(steps, tuple):
        return _uneven_step(sites[often], steps, sides)
    pair = [Side(view, way_to(view, side.call), side.call) for view, side in zip(sides, found.variants, strict=False)]
    equal = equal_heads(pair[often], pair[1 - often])
    rounds = said + rounds_words(sides[often].process.snapshot, way, sites[often], steps, equal)
    if parting is not None:
        return rounds
    if all(count[sites[rare]] for count in counts):
        behind = 0 if counts[0][sites[rare]] < counts[1][sites[rare]] else 1
        known = skipped_words(sides[rare].process.snapshot, way_to(sides[rare], found.variants[rare].call), sites[rare])
        if known is not None and counts[0][sites[rare]] != counts[1][sites[rare]]:
            return (
                f"{other}: see whether {known} left it out on rank {sides[behind].process.rank} alone. "
                "All ranks must take part in it in each round, with zeros or another neutral value, or all leave "
                "out the same round (all_reduce() the flag)."
            )
        return (
            f"{other}: see whether rank {sides[often].process.rank} "
            "skips it (an early return, a `continue`, an error that is caught): all ranks must take part, with a "
            f"neutral value. {rounds}"
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


def _threads_advice(match: GroupMatch, found: Mismatch, sides: Sequence[ProcessView]) -> str | None:
    """Where each rank calls the two lines' collectives from two threads of its own: their order is chance."""
    sites = [site for side in found.variants[:2] if (site := site_of(side.call)) is not None]
    if len(sites) < 2 or sites[0] == sites[1] or len(sides) < 2:
        return None
    for view in sides:
        own = [call for call in view.process.snapshot.collectives if call.group == match.name]
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
