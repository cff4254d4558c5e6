"""An all_to_all_single whose two lists of split sizes are one: what a rank sends tells nothing of what it gets.

By one expression in the call, or by one that a line gives for both parameters of the function that calls it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import capital, list_words
from pytracer.analyze.collectives.call_sites import calls_of_group, site_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.own_lines import only_call
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import calls_on, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

_OUTPUT, _INPUT = ("output_split_sizes", 2), ("input_split_sizes", 3)
_MOST = 3
_Step = tuple[ast.AST, Spot]


class SameCounts(msgspec.Struct, frozen=True):
    """`name`: what `place` passes for both; `others`: lines of its file that do the same.

    `fitted`: whether the line of the collective has called others before.
    """

    name: str
    place: str
    others: tuple[int, ...] = ()
    fitted: bool = False

    @property
    def subject(self) -> str:
        """For the headline."""
        return f"{self.place} passes `{self.name}` both for what is sent and for what is received"

    @property
    def advice(self) -> str:
        """What is wrong with that."""
        also = ""
        if 0 < len(self.others) <= _MOST:
            do = "does" if len(self.others) == 1 else "do"
            also = f", and so {do} {list_words([f'line {line}' for line in self.others])}"
        before = ", as in the calls before" if self.fitted else ""
        return (
            f"{capital(self.place)} passes `{self.name}` as output_split_sizes and as input_split_sizes{also}: these "
            f"are equal only where all ranks send alike{before}."
        )


def same_counts(view: ProcessView, call: Collective) -> SameCounts | None:
    """Where the only such call of its line has one expression for both.

    Args:
        view: A rank.
        call: The collective that it was in.
    """
    frame = place_of(call)
    found = only_call(view.process.snapshot, call)
    output, given = (_argument(found, *which) for which in (_OUTPUT, _INPUT)) if found is not None else (None, None)
    if frame is None or output is None or given is None or isinstance(output, ast.Constant):
        return None
    own = (item for item in calls_of_group(view, call.group) if item.sequence_nr < call.sequence_nr)
    fitted = any(site_of(item) == site_of(call) and item.op == call.op for item in own)
    if ast.unparse(output) == ast.unparse(given):
        return SameCounts(source(given), f"line {frame.line}", fitted=fitted)
    slice_ = Slice(view.process.snapshot, way_to(view, call)[::-1])
    spot = slice_.spot(0)
    step = _common(_steps(slice_, output, spot), _steps(slice_, given, spot)) if spot is not None else None
    if step is None:
        return None
    node, at = step
    others = tuple(dict.fromkeys(_others(at, ast.unparse(node))))
    return SameCounts(source(node), line_in(at.file, at.line, frame.file), others, fitted)


def _argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    value = keyword_value(call, name)
    return value if value is not None or place >= len(call.args) else call.args[place]


def _steps(slice_: Slice, value: ast.expr, spot: Spot) -> Sequence[_Step]:
    """What the value was in each function that passed it on, the innermost first."""
    made = slice_.made(value, spot, calls=False)
    return (*made.through, (made.node, made.spot))


def _common(mine: Sequence[_Step], theirs: Sequence[_Step]) -> _Step | None:
    """The innermost expression that both come from: read twice by one line, or the same one that made both."""
    for node, at in mine:
        for other, there in theirs:
            same = at.scope is there.scope and at.line == there.line and ast.unparse(node) == ast.unparse(other)
            if node is other or (same and isinstance(node, (ast.Name, ast.Attribute))):
                return node, at
    return None


def _others(at: Spot, name: str) -> Iterator[int]:
    """Other lines of the file that call the same with one expression at the places of those two."""
    twice = [item for item in calls_on(at.tree, at.line) if len(_places(item, name)) > 1]
    for own in twice[:1]:
        places = _places(own, name)
        for item in nodes_of(at.tree):
            if not isinstance(item, ast.Call) or item is own or ast.unparse(item.func) != ast.unparse(own.func):
                continue
            given = {ast.unparse(item.args[place]) for place in places if place < len(item.args)}
            if len(given) == 1 and len(item.args) > max(places):
                yield item.lineno


def _places(call: ast.Call, name: str) -> list[int]:
    return [place for place, item in enumerate(call.args) if ast.unparse(item) == name]
