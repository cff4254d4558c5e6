"""A boolean mask whose shape is not that of what it selects from: flat, turned round, or of another dimension."""

from __future__ import annotations

import ast
import math
import re

from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import sizes_in
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_Sizes = tuple[int, ...]
_KEEPING = ("isnan", "isfinite", "isinf", "abs", "logical_not", "astype", "copy")


def unfit_mask(at: FailingLine, found: re.Match[str]) -> str | None:
    """`table[mask]`, by torch's message, which has both shapes."""
    return _unfit(at, sizes_in(found[1]), sizes_in(found[2]))


def unfit_array_mask(at: FailingLine, _: re.Match[str]) -> str | None:
    """The same of NumPy, whose message has one dimension: by the recorded shapes."""
    node = at.only(ast.Subscript)
    if node is None:
        return None
    table = at.shape(node.value)
    read = {shape.sizes for name in names_in(node.slice) if (shape := at.shape(name)) is not None and shape.sizes}
    kept = not any(isinstance(item, (ast.Subscript, ast.Tuple)) for item in nodes_of(node.slice))
    kept = kept and all(called_name(item) in _KEEPING for item in nodes_of(node.slice) if isinstance(item, ast.Call))
    return _unfit(at, read.pop(), table.sizes) if table is not None and len(read) == 1 and kept else None


def _unfit(at: FailingLine, mask: _Sizes, table: _Sizes) -> str | None:
    node = at.only(ast.Subscript)
    if node is None:
        return None
    masks = [item for item in _indices(node) if not isinstance(item, (ast.Slice, ast.Constant))]
    index = masks[0] if len(masks) == 1 else node.slice
    what, held, came = source(index), source(node.value), at.came(_made_of(index))
    fits = _fitting(mask, table, what, held) if not isinstance(node.slice, ast.Tuple) else None  # `x[:, mask]`
    if fits is not None:
        has = f"`{held}`{at.came(node.value)} {[*table]}"
        return f"The mask `{what}`{came} is {[*mask]}, and {has}: {fits}"
    return (
        f"The mask `{what}` {[*mask]}{came} was not made for `{held}` {[*table]}"
        f"{at.came(node.value)}: make it of the same tensor, before or after both are filtered."
    )


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _made_of(mask: ast.expr) -> str:
    """The only variable that it is computed from."""
    own = variable(mask)
    names = names_in(mask) if own is None else [own]
    return names[0] if len(names) == 1 else ""


def _fitting(mask: _Sizes, table: _Sizes, what: str, held: str) -> str | None:
    """How it would fit: it has to have the first dimensions of what it selects from."""
    if not math.prod(mask):
        return None
    text = what if what.isidentifier() or what.endswith(")") else f"({what})"
    if 1 in mask and tuple(size for size in mask if size != 1) == table[: len(mask) - mask.count(1)]:
        last = -1 if mask[-1] == 1 and mask.count(1) == 1 else ""
        return f"the mask has a dimension of 1 too many. Take it away (`{text}.squeeze({last})`)."
    first = next((table[:k] for k in range(1, len(table) + 1) if math.prod(table[:k]) == math.prod(mask)), None)
    if first is not None and first != mask:
        return _reshaped(mask, first, text, held, whole=first == table)
    if table[1 : len(mask) + 1] == mask and table[0] != mask[0]:
        more = "" if len(mask) == 1 else " and on"
        return f"the mask is as long as dimension 1{more}. Write `{held}[:, {what}]` if it is of those."
    return None


def _reshaped(mask: _Sizes, first: _Sizes, text: str, held: str, *, whole: bool) -> str:
    """Of as many elements as the first dimensions have."""
    if len(mask) > 1 and sorted(mask) == sorted(first):
        return "its dimensions are in another order. Turn it round (transpose(), permute()), or what it selects from."
    if len(mask) == 1:
        shape = f"{held}.shape" if whole else str(first)
        return (
            f"the mask is flat and has as many elements ({'*'.join(map(str, first))} = {mask[0]}). Reshape it if it "
            f"was flattened in that order (`{text}.reshape({shape})`), or flatten `{held}` alike."
        )
    flat = len(first) == 1
    as_many = " as dimension 0, and is not flat" if flat else ", in another shape"
    return (
        f"the mask has as many elements{as_many}. Reshape the mask if its elements are in that order "
        f"(`{text}.reshape({'-1' if flat else first})`)."
    )
