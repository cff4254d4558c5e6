"""An `if` that came out differently, as it asks for what one rank alone has as it is meant: said of both ranks."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.deciders import Decider
from pytracer.analyze.collectives.one_rank_values import OneRankValue
from pytracer.analyze.collectives.rank_objects import RankObject
from pytracer.analyze.collectives.rank_values import Compared
from pytracer.analyze.collectives.tested_values import may_have_changed
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.naming import line_in

_LONG = Pattern(r"-?\d+\.\d{5,}(?:e[+-]?\d+)?$")


def one_rank_subject(there: Side, absent: Side, by: Decider, known: OneRankValue | RankObject) -> str | None:
    """`` `loss` of line 14 (`if loss < best:`) differs between ranks (0.6 on rank 0, 1.1 on rank 1), as line 5 ... ``.

    Args:
        there: The rank that came to the call.
        absent: The rank that left it out, in the same round.
        by: The `if`.
        known: What that asks for.
    """
    head = quoted(there.view.process.snapshot, by.frame, by.node.lineno)
    if head is None:
        return None
    where = line_in(by.frame.file, by.node.lineno, there.way[-1].file)
    return f"`{known.name}` of {where} ({head}) {known.differs(values_of_both(there, absent, by, known))}"


def values_of_both(there: Side, absent: Side, by: Decider, known: OneRankValue | RankObject) -> str:
    """`` (0.6 on rank 0, 1.1 on rank 1)``: what it was, where that is recorded and nothing may have set it since."""
    compared = Compared(there.view, there.call, absent.view, absent.call)
    at = there.way.index(by.frame) if by.frame in there.way else None
    spot = compared.slice.spot(len(there.way) - 1 - at) if at is not None else None
    behind = absent.way[at].line if at is not None and len(absent.way) > at else None
    if spot is None or behind is None or behind <= by.node.lineno:
        return ""
    pair = compared.pair(ast.parse(known.name, mode="eval").body, spot)
    if pair is None or pair[0] == pair[1]:
        return ""
    lines = sorted(((by.node.lineno + 1, spot.line), (by.node.lineno + 1, behind)))
    changed = any(may_have_changed(spot, known.name, value, *part) for value in pair for part in lines)
    shown = [_short(value) for value in pair] if _short(pair[0]) != _short(pair[1]) else pair
    return "" if changed else f" ({shown[0]} on {there.name}, {shown[1]} on {absent.name})"


def _short(value: str) -> str:
    """Six digits of a number with more."""
    return f"{float(value):.6g}" if _LONG.match(value) else value
