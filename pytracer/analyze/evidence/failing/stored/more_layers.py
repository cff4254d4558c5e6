"""Keys that a checkpoint lacks as a list of the model has more layers now: `blocks.2`, which was saved with two."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.reached_spots import reached_spot
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, scope_of

_NUMBERED = Pattern(r"(?:^|\.)([A-Za-z_]\w*)\.(\d+)\.")
_LISTS = ("ModuleList", "Sequential")
_HOPS = 4


class MoreLayers(msgspec.Struct, frozen=True):
    """`saved`: how many of `name` the checkpoint has, and `now` the model; `certain`: whether all keys are known."""

    name: str
    saved: int
    now: int
    place: str
    certain: bool

    @property
    def words(self) -> str:
        """A clause."""
        had = f"has {self.saved}" if self.certain else f"seems to have {self.saved}"
        return f"the model has {self.now} `{self.name}` now ({self.place}), and the checkpoint {had}"


def more_layers(at: FailingLine, missing: Sequence[str], *, whole: bool) -> MoreLayers | None:
    """None where other keys are missing, too, or the number of the layers is not known.

    Args:
        at: The failing line.
        missing: Keys that the checkpoint lacks.
        whole: Whether these are all; else the first in the model's order, so that those before it were there.
    """
    found = [_NUMBERED.search(key) for key in missing]
    numbers = sorted({int(item[2]) for item in found if item is not None})
    names = {item[1] for item in found if item is not None}
    if not numbers or None in found or len(names) != 1 or numbers[0] == 0:
        return None
    (name,) = names
    counted = _counted(at, name)
    if counted is None or counted[0] <= numbers[-1]:
        return None
    if whole and numbers != [*range(numbers[0], counted[0])]:
        return None
    return MoreLayers(name, numbers[0], counted[0], counted[1], whole)


def _counted(at: FailingLine, name: str) -> tuple[int, str] | None:
    """How many layers the only list of that name gets, and the line: `nn.ModuleList(Block() for _ in range(depth))`."""
    found = [
        (file, item, bound)
        for file, tree in at.trees.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == f"self.{name}"
        if (bound := _bound(item.value)) is not None
    ]
    if len(found) != 1:
        return None
    file, item, bound = found[0]
    spot = Spot(file, at.trees[file], scope_of(at.trees[file], item.lineno), item.lineno)
    count = _number(at, bound, spot)
    place = f"{at.in_file(file, item.lineno)}: `{source(item.value)}`"
    return (count, place) if count is not None else None


def _bound(value: ast.expr) -> ast.expr | None:
    """`depth` of `nn.ModuleList([Block() for _ in range(depth)])`."""
    if not isinstance(value, ast.Call) or called_name(value) not in _LISTS or len(value.args) != 1:
        return None
    made = value.args[0].value if isinstance(value.args[0], ast.Starred) else value.args[0]
    if not isinstance(made, (ast.ListComp, ast.GeneratorExp)) or len(made.generators) != 1 or made.generators[0].ifs:
        return None
    over = made.generators[0].iter
    counts = isinstance(over, ast.Call) and called_name(over) == "range" and len(over.args) == 1
    return over.args[0] if counts and isinstance(over, ast.Call) else None


def _number(at: FailingLine, node: ast.AST, spot: Spot) -> int | None:
    """By a constant, or what was recorded of a variable of the stack that it comes from."""
    for _ in range(_HOPS):
        made = at.slice.made(node, spot, calls=True)
        for part, place in (*made.through, (made.node, made.spot)):
            told = at.value_at(part, place)
            if told is not None and told.isdecimal():
                return int(told)
        if isinstance(made.node, ast.Constant):
            return made.node.value if type(made.node.value) is int else None
        node, inner = made.node, made.spot
        if not isinstance(node, ast.Name) or not is_parameter(inner.scope, node.id) or inner.call is not None:
            return None
        reached = reached_spot(at.slice, at.trees, inner.file or "", inner.scope, inner.line)
        if reached is None or reached.call is None:
            return None
        spot = reached
    return None
