"""An index that is two integers of 32 bits, read as one of 64: the array has another type than the native code takes.

Its halves are both indices of the tensor, which no other number of that size has by chance.
"""

from __future__ import annotations

import ast
import math

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.own_code.arrays import held_array
from pytracer.analyze.evidence.own_code.own_libraries import passed_by
from pytracer.analyze.evidence.own_code.passed_memory import held_tensor
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_HALF = 32
_MOST_ROWS = 1 << 24


class TwoIndices(msgspec.Struct, frozen=True):
    """The index is `low` + `high` * 2**32. `name`: the only array of the line that may have them."""

    index: int
    low: int
    high: int
    name: str | None
    line: str

    @property
    def advice(self) -> str:
        """What to convert."""
        what = f"`{self.name}`" if self.name is not None else "the index array"
        return (
            f"Check the type of {what}, which {self.line} passes: the index {self.index} is {self.low} + {self.high} * "
            "2**32, two integers of 32 bits that the native code reads as one of 64. Convert it before "
            "(`.astype(np.int64)`, `.long()`), or take int32_t in C."
        )


def two_indices(view: ProcessView, number: int) -> TwoIndices | None:
    """`number`: of an element of the storage at the fault; None where it is no such index of a tensor there."""
    storage = view.place.storage if view.place is not None else None
    if storage is None or number <= 0 or view.crash is None:
        return None
    for tensor in view.crash.arguments:
        if tensor.base != storage.base or not tensor.elements:
            continue
        for at in range(1, len(tensor.sizes) + 1):  # whole rows first
            width = math.prod(tensor.sizes[at:])
            index, rows = number // width, tensor.elements // width
            low, high = index & ((1 << _HALF) - 1), index >> _HALF
            if 0 < high < rows <= _MOST_ROWS and low < rows:
                return TwoIndices(index, low, high, _array(view), line_words(view))
    return None


def _array(view: ProcessView) -> str | None:
    """Of what the line passes, the only integer tensor of 32 bits, else the only variable that is no known tensor."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None or view.crash is None:
        return None
    calls = [node for node in nodes_of(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    spans = [node for node in calls if node.lineno <= frame.line <= (node.end_lineno or 0)]
    names = list(dict.fromkeys(name for node in spans for name in passed_by(node)))
    tensors = {name: item for name in names if (item := held_tensor(view, name)) is not None}
    arrays = {name: array for name in names if (array := held_array(view, name)) is not None}
    dtypes = {name: item.dtype for name, item in tensors.items()} | {name: item.dtype for name, item in arrays.items()}
    narrow = [name for name, dtype in dtypes.items() if dtype in ("int32", "uint32")]
    others = [name for name in names if name not in dtypes]
    found = narrow or others
    return found[0] if len(found) == 1 else None
