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
from pytracer.analyze.evidence.syntax.outcomes import outcome
from pytracer.analyze.naming import line_in

_OF_TENSOR = Pattern(r"^\[\] \w+ (?=\S+$)")
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
    return one_rank_words(there, absent, by, known, f"{where} ({head})")


def one_rank_words(there: Side, absent: Side, by: Decider, known: OneRankValue | RankObject, place: str) -> str:
    """As one_rank_subject, of the `place` of the `if`."""
    return f"`{known.name}` of {place} {known.differs(values_of_both(there, absent, by, known))}"


def values_of_both(there: Side, absent: Side, by: Decider, known: OneRankValue | RankObject) -> str:
    """`` (0.6 on rank 0, 1.1 on rank 1)``: what it was, where that is recorded and nothing may have set it since."""
    pair = _Both(there, absent, by).pair(ast.parse(known.name, mode="eval").body)
    if pair is None or pair[0] == pair[1]:
        return ""
    shown = [_short(value) for value in pair] if _short(pair[0]) != _short(pair[1]) else pair
    return f" ({shown[0]} on {there.name}, {shown[1]} on {absent.name})"


def came_out_alike(there: Side, absent: Side, by: Decider) -> bool | None:
    """Whether the `if` came out the same on both, as far as its values are recorded and nothing may have set them."""
    if not isinstance(by.node, ast.If):
        return None
    both = _Both(there, absent, by)
    one, other = (outcome(by.node.test, lambda node, rank=rank: both.value(node, rank)) for rank in (0, 1))  # type: ignore[misc]
    return one == other if one is not None and other is not None else None


class _Both:
    """What variables of an `if` were on two ranks that have passed it; not what may have been set since."""

    def __init__(self, there: Side, absent: Side, by: Decider) -> None:
        self._compared = Compared(there.view, there.call, absent.view, absent.call)
        at = there.way.index(by.frame) if by.frame in there.way else None
        self._spot = self._compared.slice.spot(len(there.way) - 1 - at) if at is not None else None
        self._behind = absent.way[at].line if at is not None and len(absent.way) > at else None
        self._line = by.node.lineno

    def pair(self, node: ast.expr) -> tuple[str, str] | None:
        """On the rank that came to the call, and on the other one."""
        spot, behind = self._spot, self._behind
        if spot is None or behind is None or behind <= self._line:
            return None
        pair = self._compared.pair(node, spot)
        if pair is None:
            return None
        lines = sorted(((self._line + 1, spot.line), (self._line + 1, behind)))
        changed = any(may_have_changed(spot, ast.unparse(node), value, *part) for value in pair for part in lines)
        return None if changed else pair

    def value(self, node: ast.expr, rank: int) -> str | None:
        """As a number, of a tensor with one."""
        pair = self.pair(node)
        return _OF_TENSOR.sub("", pair[rank]) if pair is not None else None


def _short(value: str) -> str:
    """Six digits of a number with more."""
    return f"{float(value):.6g}" if _LONG.match(value) else value
