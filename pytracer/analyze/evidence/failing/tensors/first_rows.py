"""`model(x)[0]` of a model that returns one tensor, and no tuple: the first row in place of the whole batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.slicing.single_tensors import returns_one_tensor
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SIZES = Pattern(r"\b(?:sizes?|shapes?|dimensions?|dim|batch_size|targets?|scalar|expected \d\w*D)\b", re.IGNORECASE)

_SEQUENCES = Pattern(r"(?:Transformer(?:(?:En|De)coderLayer)?|MultiheadAttention|LSTM|GRU|RNN)$")


class _Row(msgspec.Struct, frozen=True):
    """`item`: `model(x)[0]`, at `spot`; `name`: the variable that has it, where one does. `batch`: rows that it had."""

    item: ast.Subscript
    call: ast.Call
    spot: Spot
    name: str | None
    sizes: tuple[int, ...] | None
    batch: int


def first_row(at: FailingLine) -> str | None:
    """Of an operand without the batch that its model was given, and that the message or another operand has."""
    if _SIZES.search(at.message) is None or at.kind not in ("RuntimeError", "ValueError", "IndexError"):
        return None
    row = next((item for item in _rows(at) if _is_asked_for(at, item)), None)
    if row is None:
        return None
    taken, index = source(row.item), ast.unparse(row.item.slice)
    place = at.place(row.spot, row.item.lineno)
    has = f"`{row.name}` lacks the batch of {row.batch}: `{taken}` ({place})" if row.name else f"`{taken}`"
    return (
        f"{has} is row {index} of the batch{'' if row.name else f' of {row.batch}'}, as {_called(at, row)} returns one "
        f"tensor and no tuple. Take the [{index}] away where all rows are meant."
    )


def _called(at: FailingLine, row: _Row) -> str:
    """`MlpMixer.forward (line 73)`, or `` `net` ``."""
    found = at.slice.function(row.call, row.spot)
    if found is None:
        return f"`{source(row.call.func)}`"
    function, where = found
    owner = next(
        (item.name for item in nodes_of(where.tree) if isinstance(item, ast.ClassDef) and function in item.body), None
    )
    return f"{f'{owner}.' if owner else ''}{function.name}() ({at.place(where, function.lineno)})"


def _rows(at: FailingLine) -> Iterator[_Row]:
    """Among the variables of the failing expression, and written out in it."""
    for name in at.shapes:
        made = at.made(name)
        sizes = at.shapes[name].sizes
        row = _row(at, made.node, made.spot, name, sizes) if made is not None else None
        if row is not None:
            yield row
    spot = at.slice.spot(0)
    for item in nodes_of(at.node) if at.node is not None and spot is not None else ():
        row = _row(at, item, spot, None, None) if spot is not None else None
        if row is not None:
            yield row


def _row(at: FailingLine, node: ast.AST, spot: Spot, name: str | None, sizes: tuple[int, ...] | None) -> _Row | None:
    """None where the call may return several values, or where what it was given has no batch of known size."""
    if not isinstance(node, ast.Subscript) or whole(node.slice) is None:
        return None
    base = at.slice.made(node.value, spot, calls=False)
    call = base.node
    if not isinstance(call, ast.Call):
        return None
    first = next(iter(passed_values(call)), None)
    if first is None or _is_set_behind(first, call, base.spot) or _takes_steps_first(at):
        return None
    given = shape_of(at.value_at(first, base.spot))
    batch = given.sizes[0] if given is not None and given.sizes else 0
    if batch < 2 or (sizes is not None and sizes[:1] == (batch,)):
        return None
    return _Row(node, call, spot, name, sizes, batch) if returns_one_tensor(at.slice, call, base.spot) else None


def _is_asked_for(at: FailingLine, row: _Row) -> bool:
    """Whether the batch is what the other operand has; or a dimension is asked for that the row has lost."""
    own = (row.name, *map(ast.unparse, passed_values(row.call)[:1]))
    others = [shape for name, shape in at.shapes.items() if name not in own]
    if others:
        return any(shape.sizes[:1] == (row.batch,) for shape in others)
    if "Dimension out of range" in at.message:
        return True
    named = re.search(rf"(?<!dimension )\b{row.batch}\b", at.message) is not None
    return named and row.batch not in (row.sizes or ())


def _is_set_behind(given: ast.expr, call: ast.Call, spot: Spot) -> bool:
    """Whether what the model was given may be another value by now."""
    name = variable(given)
    return name is None or any(line > call.lineno for line, _ in lines_that_bind(spot.scope, name))


def _takes_steps_first(at: FailingLine) -> bool:
    """Whether a layer of the program takes the steps of a sequence as dimension 0, and the batch as dimension 1."""
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return any(
        _SEQUENCES.match(called_name(item) or "") is not None and keyword_value(item, "batch_first") is None
        for item in calls
    )
