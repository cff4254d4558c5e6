"""Why an array may be too short for the ids that look into it: its length follows from the values that occur.

bincount() without minlength has max() + 1 elements, as with that for it, unique() one for each value that occurs,
and `zeros(x.max() + 1)` no room for an id that is in other data only. What the array is made of is followed by the
source alone.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable

_LEVELS, _QUOTED = 16, 50
_MODULES = frozenset({"np", "numpy", "torch", "F", "pd"})
_UNIQUE = frozenset({"unique", "unique_consecutive"})
_LARGEST = frozenset({"max", "amax"})
_OTHER_LENGTH = ("return_index", "return_inverse")
# Calls whose result has as many elements as what they are given, or as many more as is written there.
_SAME = frozenset(
    {"concatenate", "cat", "concat", "hstack", "append", "insert", "pad", "cumsum", "asarray", "array", "tensor"}
    | {"ascontiguousarray", "as_tensor", "from_numpy", "zeros_like", "empty_like", "ones_like", "full_like", "diff"}
    | {"sort", "flip", "copy", "clone", "contiguous", "astype", "to", "long", "int", "int32", "int64", "numpy", "cpu"}
    | {"require", "detach", "add", "cumulative_sum", "accumulate", "add_accumulate", "list", "tuple"}
)
_BY_SIZE = frozenset(
    {"zeros", "empty", "ones", "full", "arange", "new_zeros", "new_empty", "new_full", "new_ones"}
    | {"rand", "randn", "random", "standard_normal", "Embedding"}
)
_BY_LAST_SIZE = frozenset({"integers", "randint"})
_COUNTS = frozenset({"len", "numel", "size", "item", "int", "nelement"})


class ShortLength(msgspec.Struct, frozen=True):
    """`text` at `line` of `file`, a call of `kind`: bincount, unique or max."""

    kind: str
    text: str
    file: str | None
    line: int

    @property
    def briefly(self) -> str:
        """For a headline."""
        if self.kind == "bincount":
            return "bincount() without minlength"
        return "unique()" if self.kind == "unique" else f"`{self.text}`"

    def advice(self, name: str, place: str) -> str:
        """What the length is, and what to write; `name`: of the array, `place`: of the line."""
        if self.kind == "bincount":
            return (
                f"`{self.text}` at {place} has no minlength: it counts up to the largest number that occurs, and "
                f"`{name}` has no element for an id above. Pass minlength=, the number of all ids."
            )
        if self.kind == "unique":
            return (
                f"`{self.text}` at {place} keeps one element for each number that occurs: an id is a place in "
                f"`{name}` only if all from 0 on occur. Make `{name}` for all ids from 0 on, or pass the places of the "
                "ids (searchsorted(), return_inverse=True)."
            )
        return (
            f"The length of `{name}` follows from `{self.text}` at {place}: it has no element for a larger id. Use the "
            "number of all ids instead."
        )


def short_length(back: Slice, node: ast.AST, spot: Spot) -> ShortLength | None:
    """None where the length of an array follows from something else, or it is not known from what."""
    return _Lengths(back).of(node, spot, _LEVELS, size=False)


class _Lengths:
    """Where a length comes from. `size`: whether the expression is the length itself."""

    def __init__(self, back: Slice) -> None:
        self._back = back

    def of(self, node: ast.AST, spot: Spot, left: int, *, size: bool) -> ShortLength | None:
        """See short_length()."""
        if left == 0:
            return None
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._variable(node, spot, left, size=size)
        if isinstance(node, ast.Call):
            return self._call(node, spot, left, size=size)
        if isinstance(node, ast.Subscript):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
                return self.of(node.value.value, spot, left - 1, size=False)
            part = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(part, int):
                return self._item(node.value, part, spot)
            return self.of(node.value, spot, left - 1, size=size) if isinstance(node.slice, ast.Slice) else None
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            parts = [node.left, node.right]
        elif isinstance(node, (ast.List, ast.Tuple)):
            parts = [item for item in node.elts if not isinstance(item, ast.Constant)]
        found = (self.of(item, spot, left - 1, size=size) for item in parts)
        return next((item for item in found if item is not None), None)

    def _variable(self, node: ast.Name | ast.Attribute, spot: Spot, left: int, *, size: bool) -> ShortLength | None:
        made = self._back.made(node, spot, calls=True)
        if made.node is not node and not isinstance(made.node, ast.Name):
            return self.of(made.node, made.spot, left - 1, size=size)
        name = variable(made.node)
        bound = last_binding(made.spot.scope, name, made.spot.line) if name is not None else None
        if bound is not None and bound[1] is not None and bound[2] is not None:  # `ids, counts = np.unique(...)`
            return self._item(bound[1], bound[2], made.spot)
        if isinstance(node, ast.Attribute) and node.attr == "size":
            return self.of(node.value, spot, left - 1, size=False)
        return None

    def _item(self, node: ast.AST, part: int, spot: Spot) -> ShortLength | None:
        """A part of what unique() returns: not the index or the inverse, which may be longer."""
        if not isinstance(node, ast.Call) or called_name(node) not in _UNIQUE:
            return None
        others = any(keyword_value(node, item) is not None for item in _OTHER_LENGTH)
        return _found("unique", node, spot) if part == 0 or not others else None

    def _call(self, node: ast.Call, spot: Spot, left: int, *, size: bool) -> ShortLength | None:
        name = called_name(node) or ""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_module = owner is None or (variable(owner) or "").partition(".")[0] in _MODULES
        given = [item for item in node.args if not isinstance(item, ast.Constant)]
        first = (given[0] if given else None) if of_module else owner
        if name == "bincount":
            places = node.args[1 + of_module :]
            least = keyword_value(node, "minlength") or (places[0] if places else None)
            if least is None:
                return _found("bincount", node, spot)
            counted = self.of(least, spot, left - 1, size=True)
            return counted if counted is not None and counted.kind == "max" else None  # it counts beyond minlength, too
        if name in _UNIQUE:
            return _found("unique", node, spot)
        if name in _LARGEST and size and len(node.args) <= of_module and not node.keywords:
            return _found("max", node, spot)
        if name in _BY_SIZE or name in _BY_LAST_SIZE:
            rows = keyword_value(node, "size", "shape")
            if rows is None and node.args:
                rows = node.args[0] if name in _BY_SIZE else node.args[-1]
            rows = rows.elts[0] if isinstance(rows, (ast.Tuple, ast.List)) and rows.elts else rows
            return self.of(rows, spot, left - 1, size=True) if rows is not None else None
        if name in _COUNTS and size:
            return self.of(first, spot, left - 1, size=name in ("int", "item")) if first is not None else None
        if name not in _SAME:
            return None
        parts = given if of_module else [owner] if owner is not None else []
        found = (self.of(item, spot, left - 1, size=size) for item in parts)
        return next((item for item in found if item is not None), None)


def _found(kind: str, node: ast.Call, spot: Spot) -> ShortLength:
    return ShortLength(kind, shortened(ast.unparse(node), _QUOTED), spot.file, node.lineno)
