"""A tensor that is sized by the largest value, or the number of values, of a rank: `k = int(labels.max()) + 1`.

By the source: the variable is the size that a call on the way of the passed tensor is given, and one line makes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pytracer.analyze.evidence.failing.expressions import as_written, short
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_SIZED = frozenset(
    {"view", "reshape", "zeros", "ones", "full", "empty", "new_zeros", "new_full", "expand", "one_hot", "bincount"}
)
_FIRST_IS_DATA = frozenset({"one_hot", "bincount"})
_COUNTS = frozenset({"unique", "nunique", "set", "Counter"})
_AGREE = frozenset({"all_reduce", "broadcast", "broadcast_object_list", "all_gather_object", "reduce", "all_gather"})
_MODULES = ("torch", "np", "numpy")
_HANDS_ON = frozenset({"int", "item", "len", "numel", "size", "float"})


@dataclass(frozen=True)
class DataSize:
    """`made`: the expression of the size; `name`: the variable; `largest`: by the largest value, not their number."""

    name: str
    made: Made
    largest: bool

    @property
    def words(self) -> str:
        """`` it comes from line 35 (`k = int(pairs.max()) + 1`), the largest value that each rank has ``."""
        by = "the largest value that each rank has" if self.largest else "the number of values that each rank has"
        return f"it comes from line {self.made.line} (`{short(as_written(self.made))}`), {by}"

    @property
    def advice(self) -> str:
        """What to do there."""
        agree = "all_reduce() it with MAX" if self.largest else "gather the values of all ranks"
        return (
            f"The size {self.words.removeprefix('it ')}. Give `{self.name}` one value on all ranks: the number of "
            f"classes as a constant or an option; or {agree} before the tensor is made."
        )


def data_size(back: Slice, node: ast.expr, spot: Spot) -> DataSize | None:
    """Of a tensor that is passed at `spot`; None where its size is not made so, or in several ways."""
    tensor = back.made(node, spot, calls=True)
    found = {item.name: item for item in _sizes(back, tensor)}
    return next(iter(found.values())) if len(found) == 1 else None


def _sizes(back: Slice, tensor: Made) -> Iterator[DataSize]:
    for call in (item for item in ast.walk(tensor.node) if isinstance(item, ast.Call)):
        name = called_name(call)
        if name not in _SIZED:
            continue
        given = [*call.args[name in _FIRST_IS_DATA :], *(item.value for item in call.keywords)]
        for variable in dict.fromkeys(item for part in given for item in names_of(part)):
            made = back.made(ast.parse(variable, mode="eval").body, tensor.spot, calls=True)
            largest = _by_data(made.node) if made.through else None
            if largest is not None and not _is_agreed(tensor.spot, variable):
                yield DataSize(variable, made, largest)


def _is_agreed(spot: Spot, name: str) -> bool:
    """Whether a line of the function passes it to a collective, such as all_reduce() with MAX."""
    calls = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and called_name(item) in _AGREE)
    return any(name in names_of(part) for call in calls for part in call.args)


def _by_data(node: ast.AST) -> bool | None:
    """True of `int(x.max()) + 1`, False of `len(set(x))`; None of anything else, such as `max(a, b)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        return _by_data(node.left)
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node)
    if name in _HANDS_ON:
        inner = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
        return _by_data(inner) if isinstance(inner, ast.Call) else None
    if name in ("max", "amax"):
        given = isinstance(node.func, ast.Name) or ast.unparse(node.func).partition(".")[0] in _MODULES
        return True if len(node.args) == given and not any(item.arg == "dim" for item in node.keywords) else None
    return False if name in _COUNTS else None
