"""index_select() and embedding() of a tensor that has fewer rows than an index asks for, by both as recorded."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.tensors.kept_inputs import kept_input
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name

_VALUES = Pattern(r", (-?\d+)\.\.(-?\d+)$")
_LIBRARIES = frozenset({"torch", "F", "functional"})


class _Selection(msgspec.Struct, frozen=True):
    """`table.index_select(dimension, index)`."""

    table: ast.expr
    index: ast.expr
    dimension: int


def chosen_row(at: FailingLine) -> str | None:
    """Which index is beyond, and whether it was kept from an earlier call, whose input was another one."""
    call = at.only(ast.Call)
    found = _selection(call) if call is not None else None
    shape = at.shape(found.table) if found is not None else None
    values = _VALUES.search(at.value(found.index) or "") if found is not None else None
    if found is None or shape is None or values is None or not -len(shape.sizes) <= found.dimension < len(shape.sizes):
        return None
    size, low, high = shape.sizes[found.dimension], int(values[1]), int(values[2])
    name, place = source(found.index), found.dimension % len(shape.sizes)
    has = f"`{source(found.table)}` {shape.words} has {size} in dimension {place}, 0 to {size - 1}"
    came = at.came(found.index)
    if low < 0:
        return f"{has}, and `{name}`{came} has {low}, which {called_name(call) if call else ''}() does not take."
    if high < size:
        return None
    kept = kept_input(at, found.index, size)
    if kept is not None:
        return f"{has}, and `{name}`{came} reaches {high}{kept}"
    return (
        f"{has}, and `{name}`{came} reaches {high}: it was made for another tensor, or by a wrong count. Print both "
        f"before {at.here(at.line)}, and make it from what `{source(found.table)}` is made of."
    )


def _selection(call: ast.Call) -> _Selection | None:
    name, owner = called_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    plain = owner is None or ast.unparse(owner).rpartition(".")[2] in _LIBRARIES
    if name == "embedding" and plain:
        index, table = argument_at(call, 0, "input"), argument_at(call, 1, "weight")
        return _Selection(table, index, 0) if table is not None and index is not None else None
    if name != "index_select":
        return None
    table = argument_at(call, 0, "input") if plain else owner
    given, index = argument_at(call, int(plain), "dim"), argument_at(call, 1 + int(plain), "index")
    dimension = whole(given) if given is not None else None
    return (
        _Selection(table, index, dimension)
        if table is not None and index is not None and dimension is not None
        else None
    )
