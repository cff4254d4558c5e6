"""gather(), all_gather() and scatter() of tensors of several sizes: a list with each rank's own is refused, too.

torch compares the entries of the list with the rank's own tensor. What other ranks pass is not in its message: entries
of several sizes show that the program expects it of them.
"""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name

# torch 2.13, csrc/distributed/c10d/Utils.hpp: assertTypeAndSizesMatch().
_REFUSED = Pattern(
    r"ProcessGroup\w+::(allgather|gather|scatter): invalid tensor size at index (\d+) "
    r"\(expected \(([\d, ]*)\), got \(([\d, ]*)\)\)"
)
_ITEMS = Pattern(r"^(\[[\d, ]*\]); (\[[\d, ]*\]) at \d+$")
_CALLS = {"gather": "gather", "allgather": "all_gather", "scatter": "scatter"}
_OBJECTS = {"gather": "gather_object", "allgather": "all_gather_object", "scatter": "scatter_object_list"}
_PLACES = {"gather": (0, 1), "allgather": (1, 0), "scatter": (0, 1)}  # of the tensor and of the list
_NAMES = {
    "gather": ("tensor", "gather_list"),
    "allgather": ("tensor", "tensor_list"),
    "scatter": ("tensor", "scatter_list"),
}


def gathered_sizes(at: FailingLine) -> str | None:
    """What is of which size, and what all ranks have to do."""
    found = _REFUSED.search(at.message)
    call = at.only(ast.Call)
    if found is None or call is None or at.own:
        return None
    op, own, other = found[1], f"[{found[3]}]", f"[{found[4]}]"
    name = f"{_CALLS[op]}()"
    tensor, entries = (_given(call, op, which) for which in (0, 1))
    mine = f"`{source(tensor)}`{at.came(tensor)}" if tensor is not None else "its tensor"
    listed = f"`{source(entries)}`{at.came(entries)}" if entries is not None else "the list"
    sizes = _sizes(at, entries, found)
    if sizes is None and op == "scatter":
        return f"{name} fills {mine}, {own}, and {listed} has {other}: make it of their size on every rank."
    if sizes is None:
        return (
            f"{name} takes entries of the size of {mine} only, and {listed} has {other} where that is {own}: make its "
            f"entries by torch.empty_like({source(tensor) if tensor is not None else 'tensor'}). Where ranks have "
            f"different sizes, as in a last batch, pad on all of them to the largest before {at.here(at.line)}, and "
            f"cut behind it."
        )
    several = f"{name} takes tensors of one size only, and {listed} has {sizes[0]} and {sizes[1]}"
    if op == "scatter":
        return (
            f"{several}: pad the parts to the largest before {at.here(at.line)}, make {mine} of that size on every "
            f"rank, and cut behind it to the part's own, or use {_OBJECTS[op]}()."
        )
    return (
        f"{several}, one for each rank: pad {mine} to the largest size of all ranks before {at.here(at.line)}, make "
        f"the entries of that size, and cut each to its own size behind it; or use {_OBJECTS[op]}(), or give all ranks "
        f"as many. Entries alike are not enough: what each rank passes must be of their size."
    )


def _given(call: ast.Call, op: str, which: int) -> ast.expr | None:
    if called_name(call) != _CALLS[op] or any(isinstance(item, ast.Starred) for item in call.args):
        return None
    return argument_at(call, _PLACES[op][which], _NAMES[op][which])


def _sizes(at: FailingLine, entries: ast.expr | None, found: re.Match[str]) -> tuple[str, str] | None:
    """Two that entries of the list have; None where all may be alike."""
    held = _ITEMS.match(at.values.get(f"items of {ast.unparse(entries)}", "")) if entries is not None else None
    if held is not None:
        return held[1], held[2]
    return (f"[{found[3]}]", f"[{found[4]}]") if int(found[2]) > 0 else None  # those before it had passed
