"""What stands behind the data in rows of one tensor, by the line of the program that makes the tensor.

`targets = torch.zeros(n, longest)` and `row[:len(ids)] = ids` leave 0 there, so that any other number of the tensor is
data. In a loop over a DataLoader the lines are those of its `collate_fn`, or of the dataset's `__getitem__`.
"""

from __future__ import annotations

import ast

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.indices.written_value import constant
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.filtered import batch_source
from pytracer.analyze.evidence.preconditions.call import BoundCall
from pytracer.analyze.evidence.slicing.elements import way_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.scopes import Scope, function_named, own_nodes, parameters, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_ALWAYS = {"zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}
# What fills with a number: its place among the arguments, its keyword, and what it is where it is not passed.
_FILLS: dict[str, tuple[int, str, int | None]] = {
    "full": (1, "fill_value", None),
    "new_full": (1, "fill_value", None),
    "full_like": (1, "fill_value", None),
    "pad_sequence": (2, "padding_value", 0),
}
_HOPS = 2
_SETS = frozenset(
    {"copy_", "fill_", "masked_fill_", "masked_scatter_", "scatter_", "index_fill_", "index_put_", "add_"}
)


class RowFill(msgspec.Struct, frozen=True):
    """`line` makes all of the tensor `number`, or pads with it, before data are written to the beginning of rows."""

    number: int
    line: LineWords

    @property
    def words(self) -> str:
        """`rows are padded with 0 (line 45)`."""
        return f"rows are padded with {self.number} ({self.line})"


def row_fill(view: ProcessView, call: BoundCall, argument: str) -> RowFill | None:
    """None where the tensor cannot be followed to one line, or other lines may fill the ends of its rows."""
    text = call.texts.get(argument)
    back = Slice(view.process.snapshot, program_frames(view))
    spot = _spot_of(back, call, len(program_frames(view)))
    if text is None or spot is None:
        return None
    for node, at in way_of(back, ast.parse(text, mode="eval").body, spot):
        found = _filled(view, node, at) or _of_batch(view, back, node, at)
        if found is not None:
            return found
        if _is_changed(at.tree, at.scope, variable(node)):
            return None
    return None


def _spot_of(back: Slice, call: BoundCall, frames: int) -> Spot | None:
    """The line of the call, in the frame of the function that made it."""
    for depth in range(frames):
        spot = back.spot(depth)
        if spot is not None and spot.file == call.file and scope_of(spot.tree, call.line) is spot.scope:
            return structs.replace(spot, line=call.line)
    return None


def _of_batch(view: ProcessView, back: Slice, node: ast.expr, spot: Spot) -> RowFill | None:
    source = batch_source(back, node, spot)
    if source is None:
        return None
    for inner, at in way_of(back, *source):
        if _is_changed(at.tree, at.scope, variable(inner)):
            return None
        found = _filled(view, inner, at)
        if found is not None:
            return found
    return None


def _filled(view: ProcessView, node: ast.expr, spot: Spot) -> RowFill | None:
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node) or ""
    number = _ALWAYS.get(name)
    if name in _FILLS:
        place, keyword, default = _FILLS[name]
        given = keyword_value(node, keyword) or (node.args[place] if len(node.args) > place else None)
        number = constant(given, spot.tree) if given is not None else default
    if number is None:
        return None
    return RowFill(number, place_of(view, spot.file, node.lineno))


def _is_changed(tree: ast.Module, scope: Scope, name: str | None, hops: int = _HOPS) -> bool:
    """Whether more than the beginnings of rows may be set: `row[n:] = PAD`, `targets[mask] = -1`, `x.fill_(9)`."""
    if name is None:
        return False
    own = _rows_of(scope, name)
    for item in own_nodes(scope):
        if isinstance(item, (ast.Assign, ast.AugAssign)):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(one, ast.Subscript) and _sets_more(one, own) for one in targets):
                return True
        elif isinstance(item, ast.Call) and called_name(item) in _SETS and isinstance(item.func, ast.Attribute):
            owner = item.func.value
            if variable(owner) in own or (isinstance(owner, ast.Subscript) and _sets_more(owner, own)):
                return True
        elif isinstance(item, ast.Call) and hops and _is_changed_by(tree, item, own, hops - 1):
            return True
    return False


def _is_changed_by(tree: ast.Module, call: ast.Call, own: set[str], hops: int) -> bool:
    """Whether a function of the same file that gets one sets more of it: `set_end(row, n, eos)`."""
    function = function_named(tree, called_name(call) or "") if isinstance(call.func, ast.Name) else None
    if function is None:
        return False
    given = dict(zip(parameters(function), call.args, strict=False))
    given |= {item.arg: item.value for item in call.keywords if item.arg}
    return any(bare_names(node) & own and _is_changed(tree, function, name, hops) for name, node in given.items())


def _rows_of(scope: Scope, name: str) -> set[str]:
    """The tensor, and variables that are rows or other views of it: `for row, ids in zip(targets, batch)`."""
    found = {name}
    for item in own_nodes(scope):
        if isinstance(item, ast.For) and name in bare_names(item.iter):
            found |= bare_names(item.target)
        elif isinstance(item, ast.Assign) and name in bare_names(item.value):
            found |= {one for target in item.targets for one in bare_names(target)}
    return found


def _sets_more(item: ast.Subscript, own: set[str]) -> bool:
    return bool(bare_names(item.value) & own) and not _is_beginning(item.slice)


def _is_beginning(index: ast.expr) -> bool:
    """`:n` of `row[:n]` and `targets[i, :n]`."""
    last = index.elts[-1] if isinstance(index, ast.Tuple) and index.elts else index
    return isinstance(last, ast.Slice) and last.lower is None and last.upper is not None and last.step is None
