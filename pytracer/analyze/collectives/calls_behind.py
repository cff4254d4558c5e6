"""A rank that had called once less from a line in a loop: it has fewer rounds there, or something left one out."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._text import count_words, uncapital
from pytracer.analyze.collectives.deciders import Decider, Deciding, calls_from, ends_early
from pytracer.analyze.collectives.left_out_calls import LeftOut, left_out_by
from pytracer.analyze.collectives.rounds import loop_words
from pytracer.analyze.collectives.same_rounds import differing_samples
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.by_rank import rounds_source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.mappings import looped_dict
from pytracer.analyze.naming import line_in


def ended_loop(found: Sequence[Deciding]) -> LeftOut | None:
    """That one rank had left a loop, after how many calls, where nothing else can have led it to another call."""
    if len(found) != 1 or not isinstance(found[0][2].node, LOOPS) or not _may_have_fewer(found[0][2]):
        return None
    there, absent, by = found[0]
    count, loop = sum(item.op == there.call.op for item in calls_from(absent, there)), by.node
    frames = there.way[::-1]
    words = (
        loop_words(there.view.process.snapshot, by.frame, loop, frames[frames.index(by.frame) :])
        if isinstance(loop, LOOPS) and by.frame in frames
        else None
    )
    if not count or words is None:
        return None
    line, made, same = words
    why = _by_rank(there, by) or _samples_words(there, absent, by)
    keys = looped_dict(loop) if isinstance(loop, LOOPS) and not why else None
    if keys is not None:
        why = f": `{keys}` has fewer keys on {absent.name}"
        same = (
            f"Fill `{keys}` with the same keys on all ranks, with a neutral value (0, and a count of 0) for what one "
            "has not seen; or all_gather_object() the keys first, and go through their sorted union."
        )
    calls = f"{count_words(count, 'call')} from line {there.way[-1].line}"
    return LeftOut(
        f"{absent.name} had left the loop of {_line(by, there)} after {calls}, {there.name} was in its "
        f"{_ordinal(count + 1)}{why}",
        f"The loop of {line} ended on {absent.name} after {calls}, and has more rounds on {there.name}.{made} {same}",
    )


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
    why = _by_rank(there, loops[0][2]) or _samples_words(there, absent, loops[0][2])
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


def _samples_words(there: Side, absent: Side, by: Decider) -> str:
    """`; the DataLoader has 32 samples on rank 0 and 40 on rank 1`."""
    if not isinstance(by.node, LOOPS) or by.frame not in there.way:
        return ""
    found = differing_samples(there, absent, there.way.index(by.frame), by.node)
    if found is None:
        return ""
    pairs = sorted(((there.number, found[0]), (absent.number, found[1])))
    said = f"{count_words(pairs[0][1], 'sample')} on rank {pairs[0][0]} and {pairs[1][1]} on rank {pairs[1][0]}"
    return f"; the DataLoader has {said}"


def _by_rank(there: Side, by: Decider) -> str:
    """Where what the loop goes through depends on the rank."""
    frames = there.way[::-1]
    if by.frame not in frames or not isinstance(by.node, (ast.For, ast.AsyncFor)):
        return ""
    found = rounds_source(Slice(there.view.process.snapshot, frames), frames.index(by.frame), by.node)
    if found is None:
        return ""
    where = line_in(found.spot.file, found.line, there.way[-1].file)
    gives = "gives each rank items of its own" if found.split is not None else "depends on the rank"
    return f"; {where} (`{source(found.node)}`) {gives}"


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"
