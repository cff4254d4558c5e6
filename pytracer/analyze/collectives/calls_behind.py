"""A rank that had called once less from a line in a loop: it has fewer rounds there, or something left one out."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import count_words, uncapital
from pytracer.analyze.collectives.call_sites import calls_of_group
from pytracer.analyze.collectives.deciders import Decider, Deciding, calls_from, ends_early
from pytracer.analyze.collectives.ended_iterators import EndedIterator, ended_iterator
from pytracer.analyze.collectives.left_out_calls import LeftOut, left_out_by
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.rounds import join_words, loop_words
from pytracer.analyze.collectives.uneven_loops import uneven
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.mappings import looped_dict
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Collective

_OF_OBJECTS = ("_object", "_object_list")  # torch: gather_object, all_gather_object, broadcast_object_list, ...


def ended_loop(found: Sequence[Deciding]) -> LeftOut | None:
    """That one rank had left a loop, after how many calls, where nothing else can have led it to another call.

    Of loops inside of one another, the one of which something shows why, and no advice where nothing does.
    """
    if not found or not all(_may_have_fewer(item[2]) and item[:2] == found[0][:2] for item in found):
        return None
    why = next(((item, known) for item in found if (known := uneven(*item[:2], item[2].frame, item[2].node))), None)
    ended = next(((item, end) for item in found if (end := ended_iterator(item[0], item[2])) is not None), None)
    if why is None and ended is not None and calls_from(ended[0][1], ended[0][0]):
        return _of_iterator(*ended)
    (there, absent, by), known = why if why is not None else (found[0], None)
    loop = by.node
    frames = there.way[::-1]
    words = (
        loop_words(there.view.process.snapshot, by.frame, loop, frames[frames.index(by.frame) :])
        if isinstance(loop, LOOPS) and by.frame in frames
        else None
    )
    if not calls_from(absent, there) or words is None:
        return None
    line, made, same = words
    keys = looped_dict(loop) if isinstance(loop, LOOPS) and known is None else None
    said = known.words if known is not None else ""
    if keys is not None:
        said = f": `{keys}` has fewer keys on {absent.name}"
        same = (
            f"Fill `{keys}` with the same keys on all ranks, with a neutral value (0, or an empty list) "
            "for what one has not seen; or all_gather_object() the keys first, and go through their sorted union."
        )
    calls = calls_words(there, len(_calls_of_pass(absent, there, by)))
    subject = f"{left_words(there, absent, by)}{said}"
    if len(found) > 1 and known is None:
        return LeftOut(subject, "")
    samples = f": {known.samples_words}" if known is not None and known.samples_words is not None else ""
    if known is not None:
        same = known.advice(same, join_words(there.view.process.snapshot, there.way[-1]))
        made = "" if known.cut is not None or samples else made
    more = f"and has more rounds on {there.name}" if len(found) == 1 else f"while {there.name} was still in it"
    return LeftOut(subject, f"The loop of {line} ended on {absent.name} {calls}, {more}{samples}.{made} {same}")


def _of_iterator(item: Deciding, end: EndedIterator) -> LeftOut:
    """A loop that a method of what it goes through ends."""
    there, absent, by = item
    left = left_words(there, absent, by)
    text = quoted(there.view.process.snapshot, by.frame, by.node.lineno)
    count = calls_words(there, len(_calls_of_pass(absent, there, by)))
    return LeftOut(
        f"{left}{end.subject}", f"The loop of {_line(by, there)} ({text}) ended on {absent.name} {count}. {end.advice}"
    )


def left_words(there: Side, absent: Side, by: Decider) -> str:
    """`rank 1 had left the loop of line 47 after 103 calls from line 50, rank 0 was in its 104th`."""
    count = len(_calls_of_pass(absent, there, by))
    left = f"{absent.name} had left the loop of {_line(by, there)} {calls_words(there, count)}"
    return f"{left}, {there.name} was in its {_ordinal(count + 1)}"


def calls_words(there: Side, count: int) -> str:
    """`after 103 calls from line 50`, `without a call from line 50`."""
    calls = f"after {count_words(count, 'call')}" if count else "without a call"
    return f"{calls} from line {there.way[-1].line}"


def _calls_of_pass(absent: Side, there: Side, by: Decider) -> list[Collective]:
    """Those since a call that cannot be of the loop: of its function outside of it, or of one that led there."""
    calls = calls_from(absent, there)
    before = [
        item.sequence_nr for item in calls_of_group(absent.view, there.call.group) if _is_outside(item, there, by)
    ]
    last = max((number for number in before if number < there.call.sequence_nr), default=0)
    return _first_of_each([item for item in calls if item.sequence_nr > last], there)


def _first_of_each(calls: Sequence[Collective], there: Side) -> list[Collective]:
    """One for each time that the line ran: objects are sent behind their sizes, and backward() reduces each bucket."""
    by = library_call(there.view, there.call) or ""
    if by.endswith(_OF_OBJECTS):
        return [item for item in calls if (item.op, item.dtype) == (there.call.op, there.call.dtype)]
    of_bucket = [item for item in calls if item.sizes == there.call.sizes] if by.endswith("backward") else []
    return of_bucket or [*calls]


def _is_outside(call: Collective, there: Side, by: Decider) -> bool:
    place = call.place
    if place is None or place.line is None or by.frame not in there.way:
        return False
    outer = [(frame.file, frame.function) for frame in there.way[: there.way.index(by.frame)]]
    own = (by.frame.file, by.frame.function)
    if (place.file, place.function) == own:
        return own not in outer and isinstance(by.node, LOOPS) and not spans(by.node, place.line)
    inner = [(frame.file, frame.function) for frame in there.way[there.way.index(by.frame) :]]
    return (place.file, place.function) in outer and (place.file, place.function) not in inner


def may_have_left_out(found: Sequence[Deciding]) -> LeftOut | None:
    """Where a loop may have fewer rounds on a rank, or one other thing left out a call in one: both, as a choice."""
    loops = [item for item in found if _may_have_fewer(item[2])]
    others = [item for item in found if not isinstance(item[2].node, LOOPS)]
    if len(found) != 2 or len(loops) != 1 or len(others) != 1 or loops[0][0] is not others[0][0]:
        return None
    there, absent, by = others[0]
    without, loop = left_out_by(there, absent, by), f"the loop of {_line(loops[0][2], there)}"
    if without is None or not calls_from(absent, there):
        return None
    head = quoted(there.view.process.snapshot, by.frame, by.node.lineno)
    known = uneven(there, absent, loops[0][2].frame, loops[0][2].node)
    why = known.words if known is not None else ""
    ways = f"{_line(by, there)} ({head}) may have left one out, or {loop} has fewer rounds there"
    if why:  # then this is the more probable
        ways = f"{loop} may have fewer rounds there, or {_line(by, there)} ({head}) left one out{why}"
    return LeftOut(
        f"{absent.name} was a call of line {there.way[-1].line} behind: {ways}",
        f"Count the rounds of {loop} on both ranks{why}. If they differ, give all ranks as many: drop or pad the rest. "
        f"If not, {uncapital(without.advice)}",
    )


def _may_have_fewer(by: Decider) -> bool:
    return isinstance(by.node, LOOPS) and not ends_early(by.node)


def _line(by: Decider, there: Side) -> str:
    return line_in(by.frame.file, by.node.lineno, there.way[-1].file)


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"
