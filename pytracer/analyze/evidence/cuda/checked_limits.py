"""The size that a checked index or label must stay below, where recorded shapes or the program's constants give it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.cuda.checked_calls import BRACKETS, CheckedCall
from pytracer.analyze.evidence.failing.expressions import source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import same_object
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.naming import short_file

_CLASSES = frozenset({"cross_entropy", "nll_loss", "multi_margin_loss"})
_SKIPPING = frozenset({"cross_entropy", "nll_loss"})
_ALONG = frozenset({
    "gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy", "index_reduce",
    "take_along_dim", "index_fill",
})  # fmt: skip
_BELOW_ZERO = frozenset({BRACKETS, "take", "put", "index_fill", "index_put"})  # negative indices count from the end
_LAYERS = 8
_VALUES = Pattern(r", (-?\d+)\.\.(-?\d+)$")


class Limit(msgspec.Struct, frozen=True):
    """`count`: of what is `counted` in `name`. `lowest`: the smallest number that is allowed."""

    count: int
    counted: str
    name: str
    lowest: int = 0

    @property
    def words(self) -> str:
        """`` `logits` has 10 classes, 0 to 9 ``."""
        return f"{self.name} has {self.count} {self.counted}, {self.lowest} to {self.count - 1}"


class Allowed(msgspec.Struct, frozen=True):
    """Which numbers a call takes. `limit`: None, if it isn't known. `skipped`: the label that a loss ignores."""

    function: str
    limit: Limit | None
    skipped: int | None = None
    sure: bool = True
    """Whether it is known what is skipped."""

    def has(self, number: int) -> bool:
        """Whether it may be one."""
        if number == self.skipped or not self.sure:
            return True
        if self.limit is None:
            return number >= 0 or self.function in _BELOW_ZERO
        return self.limit.lowest <= number < self.limit.count

    def refusal(self, number: int) -> str:
        """Of a number that it does not have."""
        if self.limit is not None:
            return f"{self.limit.words}: {self._change(number, number, self.limit)}"
        if self.skipped is not None:
            return f"{self.function} skips {self.skipped} only: pass ignore_index={number}, or replace it before"
        return f"{self.function} takes no number below 0: replace {number} before, or leave such elements out"

    def beyond(self, recorded: Sequence[tuple[str, str]]) -> str | None:
        """What was recorded of a variable that was outside of the limit, and what to change."""
        for name, value in recorded:
            found = _VALUES.search(value)
            if found is None or self.limit is None:
                continue
            low, high = int(found[1]), int(found[2])
            if not self.has(low) or not self.has(high):
                said = f"`{name}` held {low} to {high} at the exception, and {self.limit.words}"
                return f"{said}: {self._change(low, high, self.limit)}."
        return None

    def _change(self, low: int, high: int, limit: Limit) -> str:
        if low == high == limit.count or (low < 1 and high == limit.count):
            return f"{limit.name} needs one more, or {high} must not occur"
        if high == limit.count:
            return f"if they begin at 1, subtract 1; else {limit.name} needs one more"
        wrong = high if high >= limit.count else low
        if self.skipped is not None:
            return f"pass ignore_index={wrong} to the loss if {wrong} marks what is to be skipped, else correct it"
        if wrong < 0:
            return f"replace {wrong} before, or leave such elements out"
        return f"correct them where they are set, or make {limit.name} larger"


def allowed(at: FailingLine, call: CheckedCall, limit: Limit | None) -> Allowed:
    """By a call."""
    if call.function not in _SKIPPING:
        return Allowed(call.function, limit)
    options, spot = call.given, at.slice.spot(0)
    if call.layer is not None and isinstance(call.layer.node, ast.Call):
        options, spot = {item.arg: item.value for item in call.layer.node.keywords if item.arg}, call.layer.spot
    elif call.is_layer:
        return Allowed(call.function, limit, None, False)
    given = options.get("ignore_index")
    if given is None or spot is None:
        return Allowed(call.function, limit, -100)
    number = whole(at.slice.made(given, spot, calls=True).node)
    return Allowed(call.function, limit, number, number is not None)


def limits_of(at: FailingLine, call: CheckedCall) -> list[Limit]:
    """Of each argument that it is known of."""
    if call.function == BRACKETS:
        return [limit for item in call.arguments if (limit := _of_dimension(at, call, _place(at, call, item)))]
    limit = _limit(at, call)
    return [limit] if limit is not None else []


def _limit(at: FailingLine, call: CheckedCall) -> Limit | None:
    if call.function in _CLASSES:
        return _classes(at, call)
    if call.function == "one_hot":
        given, spot = call.given.get("num_classes"), at.slice.spot(0)
        count = at.evaluated(given, spot) if given is not None and spot is not None else None
        return Limit(count, "classes", "one_hot") if count is not None and count > 0 else None
    if call.function in ("embedding", "embedding_bag"):
        return _rows(at, call)
    name, sizes = _tensor(at, call.given.get("input"))
    if not sizes:
        return None
    if call.function in ("take", "put"):
        total = 1
        for size in sizes:
            total *= size
        return Limit(total, "elements", name, -total)
    given = call.given.get("dim")
    if call.function == "index_put":
        return _of_dimension(at, call, 0) if len(call.arguments) == 1 else None
    return _of_dimension(at, call, whole(given)) if call.function in _ALONG and given is not None else None


def _of_dimension(at: FailingLine, call: CheckedCall, dim: int | None) -> Limit | None:
    name, sizes = _tensor(at, call.given.get("input"))
    if dim is None or not -len(sizes) <= dim < len(sizes):
        return None
    count = sizes[dim]
    lowest = -count if call.function in _BELOW_ZERO else 0
    return Limit(count, f"in dimension {dim % len(sizes)}", name, lowest)


def _classes(at: FailingLine, call: CheckedCall) -> Limit | None:
    given = call.given.get("input")
    name, sizes = _tensor(at, given)
    if sizes:
        return Limit(sizes[1 if len(sizes) > 1 else 0], "classes", name)
    last = _last_layer(at, given) if given is not None else None
    node = last.node if last is not None else None
    if last is None or not isinstance(node, ast.Call):
        return None
    outputs = node.args[1] if len(node.args) > 1 else None
    count = at.evaluated(outputs, last.spot) if outputs is not None else None
    where = f"{short_file(last.spot.file)}:{last.line}"
    return Limit(count, "outputs", f"`{source(node)}` ({where})") if count is not None else None


def _last_layer(at: FailingLine, node: ast.expr) -> Made | None:
    """`nn.Linear(8, classes)`, what gave the output; of nn.Sequential its last layer."""
    spot = at.slice.spot(0)
    inner: ast.AST = node
    for _ in range(_LAYERS):
        if spot is None:
            return None
        found = at.slice.made(inner, spot, calls=True)
        inner, spot = found.node, found.spot
        if not isinstance(inner, ast.Call):
            return None
        kind = called_name(inner)
        if kind in ("Linear", "Conv2d"):
            return found
        same = same_object(inner)
        if same is not None:
            inner = same
        elif kind == "Sequential":
            if not inner.args or isinstance(inner.args[-1], ast.Starred):
                return None
            inner = inner.args[-1]
        else:
            inner = inner.func
    return None


def _place(at: FailingLine, call: CheckedCall, index: ast.expr) -> int | None:
    """Which dimension of x an index of x[...] is of."""
    inside = call.node.slice if isinstance(call.node, ast.Subscript) else call.node
    for n, item in enumerate(inside.elts if isinstance(inside, ast.Tuple) else [inside]):
        if item is index:
            return n
        shape = at.shape(item)
        one = isinstance(item, ast.Slice) or whole(item) is not None or (shape is not None and shape.dtype != "bool")
        if not one and not (at.value(item) or "").isdigit():  # `...`, None or perhaps a mask
            return None
    return None


def _rows(at: FailingLine, call: CheckedCall) -> Limit | None:
    weight = call.given.get("weight")
    if weight is not None:
        name, sizes = _tensor(at, weight)
        return Limit(sizes[0], "rows", name, 0) if sizes else None
    made = call.layer
    if made is None or not isinstance(made.node, ast.Call) or not isinstance(call.node, ast.Call):
        return None
    given = [item.value for item in made.node.keywords if item.arg == "num_embeddings"] or made.node.args[:1]
    rows = at.evaluated(given[0], made.spot) if given else None
    return Limit(rows, "rows", f"`{source(call.node.func)}`", 0) if rows is not None else None


def _tensor(at: FailingLine, node: ast.expr | None) -> tuple[str, tuple[int, ...]]:
    """Of a variable that nothing has bound since the kernel was launched."""
    name = variable(node) if node is not None else None
    shape = at.shape(node) if name is not None else None
    later = any(line >= at.line for line, _, _ in bindings_of(at.scope, name)) if name is not None else True
    return (f"`{name}`", shape.sizes) if shape is not None and not later else ("", ())
