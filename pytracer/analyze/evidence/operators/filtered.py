"""A tensor of 0 elements, because a line of the program keeps only some rows, `offsets[labeled]`, and there were none.

In a loop over a DataLoader the line is that of its `collate_fn`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.node_operands import NodeOperands
from pytracer.analyze.evidence.slicing.elements import looped_over
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder

_QUOTED, _HOPS = 60, 6
_TESTS = Pattern(
    r"^(?:is(?:nan|finite|inf|in|close|na|null|notna)|logical_\w+|bitwise_\w+|eq|ne|gt|ge|lt|le|bool|bernoulli)$"
)
_SELECTS = frozenset({"nonzero", "where", "argwhere", "flatnonzero"})
_PASSES_ON = frozenset({"squeeze", "flatten", "view", "reshape", "to", "numpy", "cpu", "float", "long", "int", "clone"})
_SAME_ROWS = frozenset({"ascontiguousarray", "asarray", "array", "asfortranarray", "from_numpy", "as_tensor"})
_MODULES = frozenset({"np", "numpy", "torch"})
_Rows = tuple[ast.expr, ast.expr]  # what is filtered, and by what


class Filtered(msgspec.Struct, frozen=True):
    """The `names`, which `line` filtered by `condition` (`labeled`), in the function `function`.

    `made`: the line of the condition. `batch`: whether it makes the batches of a DataLoader. `operands`: the
    layer that gets them; `whole`: what that line returns without a filter, and the same layer gets.
    """

    names: tuple[str, ...]
    line: LineWords
    condition: str
    made: LineWords | None
    function: str | None
    batch: bool
    whole: tuple[str, ...]
    operands: NodeOperands | None

    @property
    def summary(self) -> str:
        """Behind `` `offsets` in main() has 0 elements ``."""
        of_made = f" ({self.made})" if self.made is not None else ""
        inside = f" in {self.function}()" if self.function is not None else ""
        what = "this batch has none" if self.batch else "there are none"
        return f", as {self.line}{inside} keeps only the rows with `{self.condition}`{of_made}, and {what}"

    @property
    def whole_words(self) -> str:
        """That another argument of the layer was not filtered."""
        if not self.whole or self.operands is None:
            return ""
        whole = list_words([f"`{name}`" for name in self.whole])
        return f"; {self.line} does not filter {whole}, which {self.operands.call} gets as well"

    def advice(self, first: str) -> str:
        """What to leave out, and what to filter as well. `first`: the line that fails."""
        name = self.names[0]
        before = self.operands.begin if self.operands is not None else first
        test = f"`if {name}.numel() == 0:{' continue' * self.batch}`"
        skip = f"Leave out {'a batch' if self.batch else 'the case'} in which {self.line} keeps nothing"
        skip = f"{skip}, before {before} ({test})"
        rows = f", or leave the rows without `{self.condition}` out of the data set" if self.batch else ""
        also = ""
        if self.whole:
            whole = list_words([f"`{item}`" for item in self.whole])
            also = (
                f" Take what belongs to the other rows out of {whole} at {self.line} as well, such as by filtering the "
                f"rows where {self.function or 'that'}() begins."
            )
        return f"{skip}{rows}: the operator does not check for an empty tensor.{also}"


def filtered(view: ProcessView, items: Sequence[Holder], operands: NodeOperands | None) -> Filtered | None:
    """Of tensors without elements in the innermost frame of the program; None unless one filter made all of them so.

    `operands`: what the layer was given whose backward failed, where that is known.
    """
    frames = program_frames(view)
    back = Slice(view.process.snapshot, frames)
    spot = back.spot(0)
    if spot is None or any(item.elements or item.expression.count(".") for item in items):
        return None
    names = list(dict.fromkeys(item.expression for item in items))
    found = [_filter_of(back, ast.Name(name, ast.Load()), spot) for name in names]
    known = [item for item in found if item is not None]
    if not known or len(known) < len(found) or len({(ast.unparse(item[2]), item[1].line) for item in known}) > 1:
        return None
    rows, at, condition, batch = known[0]
    made = _made(view, back, condition, at)
    name = getattr(at.scope, "name", None) if at.scope is not spot.scope else None
    whole = _whole(back, spot, operands, names, batch)
    line = place_of(view, at.file, rows.lineno)
    return Filtered(tuple(names), line, shortened(ast.unparse(condition), _QUOTED), made, name, batch, whole, operands)


class KeptRows(msgspec.Struct, frozen=True):
    """`line`, at `spot`, keeps the rows of an array with `condition`, which `made` makes, and there were none.

    `in_loop`: whether a loop of the same function goes around it.
    """

    line: LineWords
    condition: str
    made: LineWords | None
    function: str | None
    in_loop: bool
    spot: Spot

    @property
    def summary(self) -> str:
        """`` line 9 in prepare() keeps only the rows with `known`, and there are none ``."""
        of_made = f" ({self.made})" if self.made is not None else ""
        inside = f" in {self.function}()" if self.function is not None else ""
        return f"{self.line}{inside} keeps only the rows with `{self.condition}`{of_made}, and there are none"


def kept_rows(view: ProcessView, name: str) -> KeptRows | None:
    """Of an empty array or tensor of the program's innermost frame; None where no filter is known to have made it."""
    back = Slice(view.process.snapshot, program_frames(view))
    spot = back.spot(0)
    found = _filter_of(back, ast.Name(name, ast.Load()), spot) if spot is not None and name.isidentifier() else None
    if found is None or spot is None:
        return None
    rows, at, condition, _ = found
    function = getattr(at.scope, "name", None) if at.scope is not spot.scope else None
    loops = (item for item in own_nodes(at.scope) if isinstance(item, (ast.For, ast.While)))
    return KeptRows(
        place_of(view, at.file, rows.lineno),
        shortened(ast.unparse(condition), _QUOTED),
        _made(view, back, condition, at),
        function,
        any(spans(item, rows.lineno) for item in loops),
        at,
    )


def _filter_of(back: Slice, node: ast.expr, spot: Spot) -> tuple[ast.expr, Spot, ast.expr, bool] | None:
    """The filtered expression, its place, the condition, and whether a DataLoader's function has it."""
    source = _source(back, node, spot)
    if source is None:
        return None
    node, at, batch = source
    for _ in range(_HOPS):
        rows = _rows(back, node, at)
        if rows is not None:
            return node, at, rows[1], batch
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PASSES_ON:
            node = node.func.value
            continue
        if _is_same_array(node):
            node = node.args[0]
            continue
        made = back.made(node, at, calls=True)
        if made.node is node or not isinstance(made.node, ast.expr):
            return None
        node, at = made.node, made.spot
    return None


def _is_same_array(node: ast.expr) -> TypeGuard[ast.Call]:
    """`np.ascontiguousarray(x)`, which has the rows that `x` has."""
    if not isinstance(node, ast.Call) or called_name(node) not in _SAME_ROWS or not node.args:
        return False
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return owner is None or variable(owner) in _MODULES


def condition_of(back: Slice, node: ast.expr, spot: Spot) -> ast.expr | None:
    """`w < sigma` of `w[w < sigma]`, `w[mask]` and `masked_select(w, mask)`: what is kept of an array is what holds."""
    rows = _rows(back, node, spot)
    return rows[1] if rows is not None else None


def batch_source(back: Slice, node: ast.expr, spot: Spot) -> tuple[ast.expr, Spot] | None:
    """Of a variable of a loop over a DataLoader: the part that its `collate_fn` returns for it."""
    source = _source(back, node, spot)
    return source[:2] if source is not None and source[2] else None


def _source(back: Slice, node: ast.expr, spot: Spot) -> tuple[ast.expr, Spot, bool] | None:
    looped = looped_over(spot, node.id) if isinstance(node, ast.Name) else None
    if looped is None:
        return node, spot, False
    over = back.made(looped[0], spot, calls=False)
    returned = _collated(back, over.node, over.spot)
    if returned is None:
        return None
    value, at = returned
    for part in looped[1][1:]:
        if isinstance(value, (ast.Tuple, ast.List)) and isinstance(part, int) and part < len(value.elts):
            value = value.elts[part]
        else:
            return None
    return value, at, True


def _collated(back: Slice, node: ast.AST, spot: Spot) -> tuple[ast.expr, Spot] | None:
    """What the only `return` of a DataLoader's `collate_fn` returns."""
    if not isinstance(node, ast.Call) or called_name(node) != "DataLoader":
        return None
    given = keyword_value(node, "collate_fn")
    if isinstance(given, ast.Call) and called_name(given) == "partial" and given.args:
        given = given.args[0]  # `functools.partial(collate, pad=0)`
    found = back.defined(given, spot) if given is not None else None
    if found is None or not isinstance(found[0], ast.FunctionDef):
        return None
    returns = [item for item in own_nodes(found[0]) if isinstance(item, ast.Return)]
    if len(returns) != 1 or returns[0].value is None:
        return None
    return returns[0].value, Spot(found[1].file, found[1].tree, found[0], returns[0].lineno)


def _rows(back: Slice, node: ast.expr, spot: Spot) -> _Rows | None:
    """`x` and the condition of `x[condition]`, `x[condition.nonzero()]` and `masked_select(x, condition)`."""
    if isinstance(node, ast.Subscript):
        index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        return (node.value, index) if _is_condition(back, index, spot) else None
    if isinstance(node, ast.Call) and called_name(node) == "masked_select" and node.args:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_torch = isinstance(owner, ast.Name) and owner.id == "torch"
        return (node.args[0], node.args[-1]) if of_torch else (owner, node.args[0]) if owner is not None else None
    return None


def _is_condition(back: Slice, node: ast.expr, spot: Spot, hops: int = _HOPS) -> bool:
    """Whether an index picks the rows for which something holds."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Invert, ast.Not))):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
        return _is_condition(back, node.left, spot) or _is_condition(back, node.right, spot)
    if isinstance(node, ast.Call):
        name = called_name(node) or ""
        if _TESTS.match(name):
            return True
        inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        if name in _SELECTS | _PASSES_ON:
            return len(node.args) <= 1 and any(_is_condition(back, item, spot, hops - 1) for item in inner)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _is_condition(back, node.value, spot, hops - 1)  # `nonzero(...)[0]`
    if not isinstance(node, ast.Name) or hops == 0:
        return False
    made = back.made(node, spot, calls=False)
    known = isinstance(made.node, ast.expr) and made.node is not node
    return known and _is_condition(back, made.node, made.spot, hops - 1)  # type: ignore[arg-type]


def _made(view: ProcessView, back: Slice, condition: ast.expr, spot: Spot) -> LineWords | None:
    """Of a condition that is a variable."""
    if not isinstance(condition, ast.Name):
        return None
    made = back.made(condition, spot, calls=False)
    text = shortened(f"{condition.id} = {ast.unparse(made.node)}", _QUOTED)
    return place_of(view, made.spot.file, made.line).then(f": `{text}`") if made.node is not condition else None


def _whole(
    back: Slice, spot: Spot, operands: NodeOperands | None, names: Sequence[str], batch: bool
) -> tuple[str, ...]:
    """What goes into the same layer, and comes from the same `return` as a plain variable."""
    if operands is None or not batch:
        return ()
    return tuple(_unfiltered(back, spot, [name for name in operands.names if name not in names]))


def _unfiltered(back: Slice, spot: Spot, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        source = _source(back, ast.Name(name, ast.Load()), spot)
        if source is None or not source[2] or variable(source[0]) is None:
            continue
        made = back.made(source[0], source[1], calls=False)
        if isinstance(made.node, ast.expr) and not _may_filter(back, made.node, made.spot):
            yield name


def _may_filter(back: Slice, node: ast.expr, spot: Spot) -> bool:
    """Whether an expression leaves out rows itself, also in a comprehension."""
    if _filter_of(back, node, spot) is not None:
        return True
    inside = list(nodes_of(node))
    return any(isinstance(item, ast.comprehension) and item.ifs for item in inside) or any(
        isinstance(item, ast.Call) and called_name(item) in ("filter", "compress") for item in inside
    )
