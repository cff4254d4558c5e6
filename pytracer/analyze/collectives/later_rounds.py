"""A rank that is in a later round of a loop around both: it passed by the call that the other one is in.

The number of the round is recorded where both ranks raised, `epoch` of `for epoch in range(n)`. By the lines alone, the
rank in the later round would look like one that is still in a loop which the other has left.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import capital
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.local_numbers import advice_at, number_at
from pytracer.analyze.collectives.quiet_handlers import quiet_handler
from pytracer.analyze.collectives.rank_branches import branch_words
from pytracer.analyze.collectives.rank_values import Compared
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.syntax.loops import Loop, deciding_ifs, last_of, loops_around
from pytracer.analyze.evidence.syntax.round_counters import round_counter
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.tensors.source_lines import syntax_tree


class PassedBy(msgspec.Struct, frozen=True):
    """`subject`: for the headline, where one `if` alone can have decided."""

    subject: str | None
    advice: str


def passed_by(one: Side, other: Side, at: int) -> PassedBy | None:
    """What led the other rank past the call of the first, in the round in which that one still is.

    Args:
        one: The rank in the earlier round.
        other: That in the later one.
        at: The position in their ways of the function in which they are at different lines.
    """
    later = _later_round(one, other, at)
    if later is None or _called(other, one) > _called(one, one):
        return None
    loop, rounds = later
    snapshot = one.view.process.snapshot
    skips = quiet_handler(snapshot, one.way[at:], other.name)
    if skips is not None:
        return PassedBy(None, f"{capital(rounds)}. {skips}")
    found = []
    for position in range(len(one.way) - 1, at - 1, -1):
        frame = one.way[position]
        tree = syntax_tree(snapshot, frame)
        ifs = deciding_ifs(tree, frame.line) if tree is not None and frame.line is not None else []
        own = [pair for pair in ifs if position > at or spans(loop, pair[0].lineno)]
        found += [
            (position, tree, item, around) for item, around in own if not isinstance(last_of(item.body), ast.Raise)
        ]
    for position, tree, item, around in found[:1]:
        frame = one.way[position]
        text = quoted(snapshot, frame, item.lineno)
        if text is None or tree is None:
            return None
        words = branch_words(frame, text, item.lineno, around)
        number = number_at(snapshot, one.way, position, item)
        by = f", by a `{number.name}` of its own ({number.place})" if number is not None else ""
        passed = f"{other.name} passed the {one.call.op} by, at line {item.lineno} ({text}){by}"
        return PassedBy(
            f"{passed}, and was in a later round: {rounds}" if len(found) == 1 else None,
            f"{words}, and {other.name} passed it by ({rounds}): {advice_at(snapshot, one.way, position, item, tree)}",
        )
    return None


def _called(side: Side, one: Side) -> int:
    """How often a rank had called from the line of the one's call, before that."""
    return sum(
        site_of(item) == site_of(one.call) and item.group == one.call.group
        for item in side.view.process.snapshot.collectives
        if item.sequence_nr < one.call.sequence_nr
    )


def _later_round(one: Side, other: Side, at: int) -> tuple[Loop, str] | None:
    """The outermost loop whose number is larger on the other rank, and what the numbers are."""
    if min(len(one.way), len(other.way)) <= at:
        return None
    compared = Compared(one.view, one.call, other.view, other.call)
    spot, there = compared.slice.spot(len(one.way) - 1 - at), other.way[at].line
    for loop in loops_around(spot.tree, spot.line) if spot is not None else ():
        counter = round_counter(loop)
        if counter is None or there is None or spot is None or not spans(loop, there):
            continue
        pair = compared.pair(counter, spot)
        numbers = [int(text) for text in pair or () if text.isdigit()]
        if len(numbers) != 2 or numbers[0] > numbers[1]:
            return None
        if numbers[0] < numbers[1]:
            return loop, f"`{counter.id}` is {numbers[0]} on {one.name} and {numbers[1]} on {other.name}"
    return None
