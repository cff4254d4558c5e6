"""What to do about ranks that called different collectives, or passed different values: by what the sources show."""

from __future__ import annotations

import msgspec

from pytracer.analyze.behind import Place
from pytracer.analyze.collectives.beside_join import beside_join
from pytracer.analyze.collectives.broadcast_buffers import buffers_words, trains_at
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.collected_sizes import collected_size
from pytracer.analyze.collectives.counted_calls import at_other_lines
from pytracer.analyze.collectives.description import place_of, span_words, value_of
from pytracer.analyze.collectives.differing_types import differing_type
from pytracer.analyze.collectives.extra_calls import extra_call
from pytracer.analyze.collectives.left_out_calls import left_out_in_line
from pytracer.analyze.collectives.library_calls import is_of_ddp, library_call
from pytracer.analyze.collectives.local_parts import local_part
from pytracer.analyze.collectives.matching import GroupMatch, Mismatch
from pytracer.analyze.collectives.mismatch_sides import Sides, from_other_lines, two_sides
from pytracer.analyze.collectives.own_lines import calls_itself, calls_of_line
from pytracer.analyze.collectives.own_orders import own_order
from pytracer.analyze.collectives.own_roots import own_root
from pytracer.analyze.collectives.packed_gradients import Packing, packing_of
from pytracer.analyze.collectives.packed_keys import packed_keys
from pytracer.analyze.collectives.padded_rows import padded_rows
from pytracer.analyze.collectives.rank_branches import below_forward
from pytracer.analyze.collectives.rank_value_words import differing_advice
from pytracer.analyze.collectives.rounds import (
    key_order_words,
)
from pytracer.analyze.collectives.set_loops import set_loop
from pytracer.analyze.collectives.sizes import cause_words, has_uneven_parts, size_advice
from pytracer.analyze.collectives.two_threads import two_threads
from pytracer.analyze.collectives.units_apart import units_apart
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.view import JobView

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
_IN_FORWARD = " Each forward of DistributedDataParallel broadcasts {0}, after eval() as well"
_NO_BUFFERS = "; with broadcast_buffers=False it does not."
_UNWRAPPED = (
    ": outside of the training loop call the model inside (`model.module(...)`), or make it with "
    "broadcast_buffers=False."
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


class Explained(msgspec.Struct, frozen=True):
    """What to do about a mismatch, and what of that the headline tells, too.

    `cause`: the loop that one rank left, a value that only one has, a call that it left out. `packing`: the line that
    packs only gradients which are not None. `names_who`: whether it is known which rank left out a call, or called one
    more. `opens`: whether the cause can begin the headline, after the file of its lines. `brief`: the cause with its
    files, and without the text of lines. `places`: lines that show the cause.
    `uneven`: whether each rank passed what it has, so that none is wrong.
    """

    advice: str
    cause: str | None = None
    packing: Packing | None = None
    names_who: bool = False
    brief: str | None = None
    opens: bool = False
    places: tuple[Place, ...] = ()
    uneven: bool = False


def explained(job: JobView, match: GroupMatch, found: Mismatch) -> Explained:
    """By what differs, and by what the program's source shows of it."""
    sides = two_sides(job, found)
    apart = found.field == "op" or from_other_lines(found)
    joined = beside_join(sides, match, found.sequence_nr) if sides is not None else None
    if joined is not None:
        return Explained(joined.advice, joined.cause, names_who=True)
    units = units_apart(*_with_ways(sides)) if sides is not None else None
    if units is not None:
        cause = units.subject if apart or found.field == "size" else None
        return Explained(units.advice, cause, names_who=cause is not None, brief=units.brief if cause else None)
    some, others = (views_of(job, side.ranks) for side in found.variants[:2])
    extra = extra_call(some, others, match, found.sequence_nr) if len(found.variants) == 2 else None
    if extra is not None and extra.known:
        return Explained(extra.advice, extra.cause, names_who=True)
    if not apart:
        return _of_value(job, match, found)
    told = at_other_lines(job, match, found)
    if found.field != "op":
        if told is None:
            return Explained(_ADVICE_LINES)
        return Explained(told.advice, told.subject, names_who=True, opens=True, places=told.places)
    threads = two_threads(match, found, views_of(job, [side.ranks[0] for side in found.variants[:2]]))
    if threads is not None:
        return Explained(threads.advice, threads.subject, names_who=told is not None or threads.subject is not None)
    if told is None:
        return Explained(_of_op(found))
    advice = told.advice + _of_buffers(job, found)
    return Explained(advice, told.subject, names_who=True, opens=True, places=told.places)


def _of_op(found: Mismatch) -> str:
    """Where nothing shows what led the ranks to different calls."""
    ops = {item.call.op for item in found.variants}
    one_line = len({site_of(item.call) for item in found.variants[:2]}) == 1
    return (
        (_ADVICE_ONE_LINE if one_line else _ADVICE["op"])
        + (_ADVICE_BARRIER if ops.intersection(_BARRIERS) else "")
        + (_ADVICE_SHARDED if any(op.startswith(_SHARDED) for op in ops) else "")
    )


def _of_value(job: JobView, match: GroupMatch, found: Mismatch) -> Explained:
    """Of one operation, to which the ranks passed different values."""
    sides = two_sides(job, found)
    if found.field == "root":
        itself = own_root(sides, match) if sides is not None else None
        if itself is not None:
            return Explained(itself.advice, itself.subject)
        known = _of_root(job, match, found)
        return Explained(known if known is not None else _ADVICE["root"])
    of_line = sides if sides is not None and site_of(sides[0][1]) == site_of(sides[1][1]) else None
    types = differing_type(*of_line) if of_line is not None and found.field == "dtype" else None
    if types is not None:
        return Explained(types.advice, places=types.places)
    if found.field != "size":
        return Explained(_ADVICE[found.field])
    part = local_part(*of_line) if of_line is not None else None
    if part is not None:
        return Explained(part.advice, part.subject, uneven=True)
    ops = {item.call.op for item in found.variants}
    if ops & set(_SHARDED) and not _is_called_directly(job, found):
        return Explained(_ADVICE_UNITS)
    known = _of_objects(job, found)
    told = Explained(known) if known is not None else _of_order(job, found) or _of_size(job, match, found)
    if told is not None:
        return told
    known = _of_keys(job, found) or padded_rows([item.call for item in found.variants])
    return Explained(known or _ADVICE["size"] + (_ADVICE_GATHER if ops <= set(_GATHERS) else ""))


def _of_buffers(job: JobView, found: Mismatch) -> str:
    """What a forward of DDP broadcasts, and how to do without, where nothing else tells."""
    words = buffers_words(job, found)
    if words is None:
        return ""
    sides = two_sides(job, found) or ()
    if any(is_of_ddp(call) and trains_at(view, call) for view, call in sides):
        return ""  # that forward needs what it broadcasts, and another collective would be next
    told = any(below_forward(view, call, library_call(view, call)) for view, call in sides)
    return _IN_FORWARD.format(words) + (_NO_BUFFERS if told else _UNWRAPPED)


def _with_ways(sides: Sides) -> tuple[Side, Side]:
    (one, mine), (other, theirs) = sides
    return Side(one, way_to(one, mine), mine), Side(other, way_to(other, theirs), theirs)


def _is_called_directly(job: JobView, found: Mismatch) -> bool:
    """Whether the program's own line calls the operation, and not FSDP for a unit of its own."""
    return any(calls_itself(view.process.snapshot, call) for view, call in two_sides(job, found) or ())


def _of_root(job: JobView, match: GroupMatch, found: Mismatch) -> str | None:
    """Where the numbers of two ranks come from."""
    sides = two_sides(job, found)
    if sides is None:
        return None
    values = [str(value_of(call, "root", match)) for _, call in sides]
    return differing_advice(sides, ("src", "dst"), (values[0], values[1]))


def _of_size(job: JobView, match: GroupMatch, found: Mismatch) -> Explained | None:
    """A call that one rank left out, or what the size comes from."""
    sides = two_sides(job, found)
    if sides is None or site_of(sides[0][1]) != site_of(sides[1][1]):
        return None
    packing = packing_of(*sides)
    if packing is not None:
        return Explained(packing.advice, packing=packing)
    without = left_out_in_line(*_with_ways(sides))
    if without is not None:
        return Explained(without.advice, without.subject, names_who=without.subject is not None)
    keyed = packed_keys(*sides)
    if keyed is not None:
        return Explained(keyed.advice, keyed.subject, places=keyed.places, uneven=True)
    order = own_order(*sides)
    if order is not None and order.known:
        return Explained(order.advice, order.subject, opens=True, places=order.places, uneven=True)
    number = found.sequence_nr
    names = [
        name
        for view, _ in sides
        for last in view.collectives
        if last.sequence_nr == number and last.group == match.name and last.buffer is not None
        for name in last.buffer.names or ()
    ]
    collected = collected_size(*sides)
    if collected is not None and not has_uneven_parts(*sides, len(match.ranks)):
        return Explained(collected.advice, collected.subject, places=collected.places, uneven=True)
    ordered = order.advice if order is not None and not _is_uneven(sides) else None
    known = size_advice(*sides, names, len(match.ranks)) or ordered
    return Explained(known) if known is not None else None


def _is_uneven(sides: Sides) -> bool:
    """Whether rows that are gathered differ in their number only: what one key has, of uneven data."""
    (one, other) = (call.sizes for _, call in sides)
    gathers = all("gather" in call.op for _, call in sides)
    return gathers and len(one) > 1 and one[0] != other[0] and one[1:] == other[1:]


def size_cause(job: JobView, match: GroupMatch, found: Mismatch, advice: str) -> str | None:
    """The line with the rank that the size comes from, where the advice says the same."""
    sides = two_sides(job, found)
    words = cause_words(*sides, len(match.ranks)) if sides is not None else None
    return words if words is not None and words.removeprefix("it ") in advice else None


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


def _of_order(job: JobView, found: Mismatch) -> Explained | None:
    """A loop around the call that goes through its tensors in another order on each rank."""
    for side, view in zip(found.variants, views_of(job, [side.ranks[0] for side in found.variants]), strict=False):
        frame = place_of(side.call)
        loop = set_loop(view.process.snapshot, frame) if frame is not None else None
        if loop is not None:
            return Explained(loop.advice, loop.subject, opens=True, places=loop.places, uneven=True)
    return None


def _of_keys(job: JobView, found: Mismatch) -> str | None:
    """A loop around the call over a dict, whose keys may have come in another order."""
    sides = two_sides(job, found)
    if sides is None or site_of(sides[0][1]) != site_of(sides[1][1]) or _is_uneven(sides):
        return None
    view, call = sides[0]
    frame = place_of(call)
    return key_order_words(view.process.snapshot, frame) if frame is not None else None
