"""A loop around a collective over a dict whose keys each rank's own data has put in: another order on each rank.

Known by the sizes: the calls of the rounds before were alike, and this one is for a key that came later on both ranks;
both passed parts of one model; or what one passed now the other passes later in the same round, and the reverse.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import list_words
from pytracer.analyze.behind import Place, places_in
from pytracer.analyze.collectives.call_sites import calls_of_group, site_of
from pytracer.analyze.collectives.exchanges import led_way
from pytracer.analyze.collectives.model_parts import parts_passed
from pytracer.analyze.collectives.sizes import Side
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.key_orders import Put, container_of, puts_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_MOST = 2  # lines that put keys in


class OwnOrder(msgspec.Struct, frozen=True):
    """`name`: of the dict, which `head` goes through. `puts`: the lines that put its keys in.

    `parts`: what of the model each rank passed. `known`: whether the calls show that the keys differed; `swapped`:
    that each rank passed the same, in another order.
    """

    name: str
    head: LineWords
    line: int
    puts: tuple[LineWords, ...]
    ranks: tuple[int, int]
    parts: tuple[str, str] | None
    known: bool
    swapped: bool

    @property
    def subject(self) -> str:
        """`` line 62 (`for name in self.buckets:`) goes through the keys in the order in which each rank ... ``."""
        if self.parts is not None:
            (one, other), (first, second) = self.ranks, self.parts
            at = f", and rank {one} was at that of `{first}`, rank {other} at that of `{second}`"
        else:
            at = ", which differs" if self.swapped else ", which may differ"
        return f"{self._goes}{at}"

    @property
    def advice(self) -> str:
        """One order and one set of keys."""
        same = " (each rank passed the same sizes, in another order)" if self.swapped else ""
        sure = self.parts is not None or self.swapped
        may = "" if sure else ", which is the rank's own if its data decides it"
        last = (
            "Do not pad or cut the tensor: values of other keys would be taken for each other."
            if sure
            else "If both are at the same key there, find out why its tensor has another size."
        )
        goes = f"{str(self.head)[:1].upper()}{self._goes[1:]}{may}{same}"
        return (
            f"{goes}. Let all ranks go through the same keys in one order: put all keys into `{self.name}` before "
            f"training, in a fixed order, or go through `sorted({self.name})`, which is enough only where every rank "
            f"has every key. To check, print the key and the size before line {self.line} on each rank. {last}"
        )

    @property
    def _goes(self) -> str:
        return (
            f"{self.head} goes through `{self.name}` in the order in which each rank first put its keys in "
            f"({list_words([*self.puts])})"
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The loop, and the lines that put keys in."""
        return places_in([self.head, *self.puts])


def own_order(first: Side, second: Side) -> OwnOrder | None:
    """Of two ranks that passed other sizes from one line."""
    for view, call in (first, second):
        snapshot, way = view.process.snapshot, led_way(view, call)[::-1]
        slice_, files = Slice(snapshot, way), program_files(snapshot, way)
        for depth, frame in enumerate(way):
            spot = slice_.spot(depth)
            found = _loop_of(slice_, files, spot) if spot is not None else None
            if found is None or spot is None:
                continue
            loop, container, puts = found
            text = quoted(snapshot, PythonFrame(file=spot.file, line=loop.lineno), loop.lineno)
            here = way[0].file
            swapped = _is_swapped(first, second)
            parts = parts_passed(first, second) if not _was_there(first, second) else None
            shown = (parts is not None or _is_new(first, second)) and not _is_decided(slice_, depth, loop)
            return OwnOrder(
                ast.unparse(container),
                line_in(frame.file, loop.lineno, here).then(f" ({text})" if text is not None else ""),
                way[0].line or 0,
                tuple(line_in(item.file, item.line, here) for item in puts[:_MOST]),
                (first[0].process.rank or 0, second[0].process.rank or 0),
                parts,
                shown or swapped,
                swapped,
            )
    return None


def _loop_of(slice_: Slice, files: dict[str, ast.Module], spot: Spot) -> tuple[ast.For, ast.expr, list[Put]] | None:
    """The innermost loop around a line that goes through what data fills."""
    for loop in reversed(loops_around(spot.tree, spot.line)):
        container = container_of(loop.iter) if isinstance(loop, ast.For) else None
        puts = puts_of(slice_, files, container, spot) if container is not None else []
        if puts and container is not None and isinstance(loop, ast.For):
            return loop, container, puts
    return None


def _is_decided(slice_: Slice, depth: int, loop: ast.For) -> bool:
    """Whether an `if` between the loop and the call may have left out a call on one rank."""
    for inner in range(depth + 1):
        spot = slice_.spot(inner)
        begin = loop.lineno if inner == depth else 0
        if spot is None or any(test.lineno > begin for test, _ in deciding_ifs(spot.tree, spot.line)):
            return True
        if any(isinstance(item, ast.If) and item.lineno == spot.line for item in own_nodes(spot.scope)):
            return True  # of one line
    return False


def _is_new(first: Side, second: Side) -> bool:
    """Whether both made more calls from the line in this step than in the one before, whose calls were alike."""
    rounds = [_rounds(*side) for side in (first, second)]
    if None in rounds:
        return False
    (before, now), (theirs, own) = (item for item in rounds if item is not None)
    return bool(before) and before == theirs and now == own and now[: len(before)] == before


def _was_there(first: Side, second: Side) -> bool:
    """Whether the step before had a call at this place, alike on both: the same key, of another size now."""
    rounds = [_rounds(*side) for side in (first, second)]
    if None in rounds:
        return False
    (before, now), (theirs, own) = (item for item in rounds if item is not None)
    return before == theirs and len(now) == len(own) < len(before)


def _rounds(view: ProcessView, call: Collective) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]] | None:
    """The sizes of the step before and of this one, up to the call."""
    earlier = _calls(view, call)
    if call.step is None or not earlier:
        return None
    now = [item.sizes for item in earlier if item.step == call.step]
    steps = [item.step for item in earlier if item.step is not None and item.step < call.step]
    return ([item.sizes for item in earlier if item.step == max(steps)], now) if steps else None


def _calls(view: ProcessView, call: Collective, *, later: bool = False) -> Sequence[Collective]:
    """Of the line, before the call or from it on."""
    found = (item for item in calls_of_group(view, call.group) if site_of(item) == site_of(call))
    chosen = (item for item in found if (item.sequence_nr >= call.sequence_nr) == later)
    return sorted(chosen, key=lambda item: item.sequence_nr)


def _is_swapped(first: Side, second: Side) -> bool:
    """Whether both went on in that step, and passed the same in all, in another order."""
    passed = [
        [item.sizes for item in _calls(*side, later=True) if item.step == side[1].step] for side in (first, second)
    ]
    return passed[0] != passed[1] and sorted(passed[0]) == sorted(passed[1])
