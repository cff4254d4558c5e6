"""The line that computes what a sparse tensor was given for its indices, and what it should have done instead.

By syntax: ids that are passed on as they are, where a line beside it looks others up; and offsets in bytes, which a
factor of `itemsize` makes, also where a file lies between.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.evidence.indices.sparse_source import SparseSource
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.elements import way_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.written_files import reads_file, written
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, statement_at
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 70
_LOOKS_UP = frozenset({"searchsorted", "bucketize"})
_BYTES = frozenset({"itemsize", "nbytes", "element_size"})
_HOPS = 6


class PartOrigin(msgspec.Struct, frozen=True):
    """`spot`: of the statement `text`, which computes it. `name`: of the last variable before that.

    `read_at`: the line that reads it from the file that the statement writes. `node`: the expression that is computed.
    """

    name: str | None
    spot: Spot
    text: str
    node: ast.AST
    read_at: LineWords | None = None

    def words(self, view: ProcessView) -> str:
        """`` line 34, `self.cols = table.cited[order]` ``."""
        return f"{self.place(view)}, `{self.text}`"

    def place(self, view: ProcessView) -> LineWords:
        """`line 34`."""
        return place_of(view, self.spot.file, self.spot.line)


def part_origin(view: ProcessView, source: SparseSource, text: str, *, through_files: bool) -> PartOrigin | None:
    """Of one of the arguments of the constructor; None where the constructor's own line computes it.

    `through_files`: the line that wrote the file that it is read from. Otherwise the last one that picks it out of
    something else: ids in a file are as right as others until something takes them for positions.
    """
    frames = program_frames(view)
    back = Slice(view.process.snapshot, frames)
    node, spot = _last(back, ast.parse(text, mode="eval").body, structs.replace(source.spot, line=source.line))
    name = next((item for item, _ in _variables(back, text, source)), None)
    if spot.file == source.spot.file and spot.line == source.line:
        return None
    if not through_files:
        picked = next(
            _picked(back, ast.parse(text, mode="eval").body, structs.replace(source.spot, line=source.line)), None
        )
        return _origin(name, *(picked or (node, spot)))
    call = node if isinstance(node, ast.Call) and reads_file(node) else None
    saved = written(program_files(view.process.snapshot, frames), back, call, None, spot) if call is not None else None
    if saved is None:
        return _origin(name, node, spot)
    found = _origin(name, saved.value, saved.spot)
    return structs.replace(found, read_at=place_of(view, spot.file, spot.line)) if found is not None else None


def _origin(name: str | None, node: ast.AST, spot: Spot) -> PartOrigin | None:
    statement = statement_at(spot.tree, spot.line)
    if statement is None or hasattr(statement, "body"):
        return None
    return PartOrigin(name, spot, shortened(ast.unparse(statement), _QUOTED), node)


def _last(back: Slice, node: ast.expr, spot: Spot) -> tuple[ast.expr, Spot]:
    """The expression that hands nothing on: through conversions, variables and attributes."""
    for _ in range(_HOPS):
        *_, (node, spot) = way_of(back, node, spot)
        made = back.made(node, spot, calls=False) if isinstance(node, ast.Attribute) else None
        if made is None or made.node is node or not isinstance(made.node, ast.expr):
            break
        node, spot = made.node, made.spot
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
            break
    return node, spot


def _picked(back: Slice, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """The lines of one function, from the constructor back, that set a variable on the way to a part of another."""
    way = [*way_of(back, node, spot)]
    for place, ((item, before), (_, at)) in enumerate(pairwise(way)):
        if not isinstance(item, ast.Name) or before.scope is not at.scope or before.line <= at.line:
            continue
        last = last_binding(before.scope, item.id, before.line)
        into_another = place + 2 < len(way) and way[place + 2][1].scope is not at.scope
        value = last[1] if last is not None and last[0] == at.line else None
        if isinstance(value, ast.Subscript) and not into_another and variable(value.value) != item.id:  # no new order
            yield value, at


def _variables(back: Slice, text: str, source: SparseSource) -> Iterator[tuple[str, Spot]]:
    spot = structs.replace(source.spot, line=source.line)
    for item, at in way_of(back, ast.parse(text, mode="eval").body, spot):
        if isinstance(item, (ast.Name, ast.Attribute)):
            yield ast.unparse(item), at


def looked_up_beside(origin: PartOrigin) -> tuple[int, str] | None:
    """The only line of its function that looks up other ids, as positions: `rows = np.searchsorted(known, ids)`.

    None where the plain indices are computed of what that line has.
    """
    found = [
        node
        for node in own_nodes(origin.spot.scope)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) in _LOOKS_UP
    ]
    if len(found) != 1:
        return None
    made = {name for target in found[0].targets for name in names_of(target)}
    if made & {*names_of(origin.node)}:
        return None
    return found[0].lineno, shortened(ast.unparse(found[0]), _QUOTED)


def byte_factor(origin: PartOrigin) -> str | None:
    """`cols.itemsize` of `starts * cols.itemsize`: what it is made of counts bytes."""
    for item in nodes_of(origin.node):
        if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult):
            for side in (item.left, item.right):
                name = called_name(side) if isinstance(side, ast.Call) else getattr(side, "attr", None)
                if name in _BYTES:
                    return ast.unparse(side)
    return None
