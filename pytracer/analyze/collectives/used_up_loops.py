"""A loop that one rank left for want of items: no condition that ends it held there, by the values at its end."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import capital, count_words
from pytracer.analyze.collectives.left_loops import LeftLoop, loop_of_items
from pytracer.analyze.collectives.own_lines import calls_itself
from pytracer.analyze.collectives.rank_values import Compared
from pytracer.analyze.collectives.tested_values import may_have_changed, tested
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import Loop, breaks_of
from pytracer.analyze.evidence.syntax.round_counters import round_counter
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.decode.types.journal import Unit

_ASCENDS = 2  # arguments of range() without a step, which may be negative


class UsedUpLoop(msgspec.Struct, frozen=True):
    """`rounds`: how many the rank behind it had; the other one was in a later one, `round`, counted from 1.

    `loop`: with what its rounds come from. `refuted`: the conditions that end it, `line 84 (`if i >= n:`)`.
    """

    outside: str
    inside: str
    rounds: int
    round: int
    loop: LeftLoop
    refuted: str

    @property
    def subject(self) -> str:
        """For the headline."""
        return (
            f"the loop of line {self.loop.line} ended on {self.outside} after {count_words(self.rounds, 'round')}, for "
            f"want of items, and {self.inside} was in round {self.round}"
        )

    @property
    def advice(self) -> str:
        """What to do, and why no condition ended it."""
        return f"{capital(self.subject)}: {self.refuted} did not hold on {self.outside}. {self.loop.same_rounds}"


def used_up_loop(inside: Side, outside: Side, at: int, loop: Loop, ends: Sequence[ast.If]) -> UsedUpLoop | None:
    """None where it may have ended in another way, or the rounds of both are not recorded.

    Args:
        inside: The rank that is still in the loop.
        outside: The one that is behind it, in the same function.
        at: Which frame of their ways, the outermost first, has the loop.
        loop: The loop.
        ends: The `if` statements that end it, by `break`.
    """
    compared = Compared(inside.view, inside.call, outside.view, outside.call)
    depth = len(inside.way) - 1 - at
    spot = compared.slice.spot(depth)
    counter = round_counter(loop)
    if not ends or spot is None or counter is None or not _ends_by(spot.tree, loop, ends):
        return None
    if _is_bound_behind(outside, at, loop, counter, spot):
        return None
    first = _first(loop)
    numbers = [int(text) - first for text in compared.pair(counter, spot) or () if text.isdigit()]
    if len(numbers) != 2 or numbers[0] <= numbers[1]:
        return None
    came = [tested(inside, outside, at, item.test, item.lineno, loop) for item in ends]
    if not all(item is not None and not item.theirs for item in came):
        return None
    snapshot, here = inside.view.process.snapshot, inside.way[at]
    shown = " and ".join(f"line {item.lineno} ({quoted(snapshot, here, item.lineno)})" for item in ends)
    joins = not calls_itself(snapshot, inside.call) and not snapshot.recorded(Unit)
    left = loop_of_items(compared.slice, depth, loop, here, joins=joins)
    return UsedUpLoop(outside.name, inside.name, numbers[1] + 1, numbers[0] + 1, left, shown)


def has_more_rounds(inside: Side, outside: Side, at: int, loop: Loop) -> bool:
    """Whether a loop over range(n) would have gone on where the rank behind it left it, by the recorded numbers."""
    found = _numbered(inside, outside, at, loop)
    if found is None:
        return False
    of_range, counter, compared, spot = found
    end = of_range.args[-1]
    pairs = [compared.pair(item, spot) if not isinstance(item, ast.Constant) else None for item in (counter, end)]
    last = str(end.value) if isinstance(end, ast.Constant) else pairs[1][1] if pairs[1] is not None else ""
    round_ = pairs[0][1] if pairs[0] is not None else ""
    return last.isdigit() and round_.isdigit() and int(round_) + 1 < int(last)


def is_in_later_round(inside: Side, outside: Side, at: int, loop: Loop) -> bool:
    """Whether the rank in a loop over range(n) is in a later round of it than that in which the other one left it."""
    found = _numbered(inside, outside, at, loop)
    if found is None or len(found[0].args) > _ASCENDS:
        return False
    _, counter, compared, spot = found
    pair = compared.pair(counter, spot)
    return pair is not None and all(item.isdigit() for item in pair) and int(pair[0]) > int(pair[1])


def _numbered(inside: Side, outside: Side, at: int, loop: Loop) -> tuple[ast.Call, ast.Name, Compared, Spot] | None:
    """The range() of a loop and its counter, with what both ranks have of it: neither has set it behind the loop."""
    counter = round_counter(loop)
    if counter is None or isinstance(loop, ast.While) or not isinstance(loop.iter, ast.Call):
        return None
    compared = Compared(inside.view, inside.call, outside.view, outside.call)
    spot = compared.slice.spot(len(inside.way) - 1 - at)
    if called_name(loop.iter) != "range" or spot is None or _is_bound_behind(outside, at, loop, counter, spot):
        return None
    return loop.iter, counter, compared, spot


def _first(loop: Loop) -> int:
    """The number of the first round: 1 of `range(1, n)`."""
    call = loop.iter if not isinstance(loop, ast.While) else None
    begins = call.args[0] if isinstance(call, ast.Call) and len(call.args) > 1 else None
    return begins.value if isinstance(begins, ast.Constant) and isinstance(begins.value, int) else 0


def _is_bound_behind(outside: Side, at: int, loop: Loop, counter: ast.Name, spot: Spot) -> bool:
    """Whether the rank behind the loop may have given its counter another value since, as in a second loop."""
    line = outside.way[at].line if len(outside.way) > at else None
    return line is None or may_have_changed(spot, counter.id, None, (loop.end_lineno or 0) + 1, line)


def _ends_by(tree: ast.Module, loop: Loop, ends: Sequence[ast.If]) -> bool:
    """Whether each `break` of the loop is directly below one of these, and no handler around it may go on behind it."""
    breaks = {id(item) for item in breaks_of(loop)}
    own = {id(part) for item in ends for part in item.body if isinstance(part, ast.Break)}
    around = [item for item in own_nodes(scope_of(tree, loop.lineno)) if isinstance(item, (ast.Try, ast.With))]
    caught = any(spans(item, loop.lineno) and _catches(item) for item in around)
    return breaks == own and not caught


def _catches(item: ast.Try | ast.With) -> bool:
    """`except`, and `with suppress(OSError)`."""
    if isinstance(item, ast.Try):
        return bool(item.handlers)
    return any("suppress" in ast.unparse(part.context_expr) for part in item.items)
