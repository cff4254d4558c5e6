"""An operator of torch that divided an integer by zero, and was given a tensor with a size of 0: a batch without rows.

The forward takes such a tensor and gives an empty result; its backward, or the part of the work for each thread,
divides by the number of rows. In the backward the tensor has no name: the program's only call of the forward has it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.in_backward import in_engine
from pytracer.analyze.evidence.operators.operator import (
    Operator,
    OperatorTensor,
    find_operator,
    is_of_torch,
    shape_words,
)
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 60


class EmptyOperand(msgspec.Struct, frozen=True):
    """`shape` of the tensor, of which `size` is 0. `call`: the forward, with its line; `name`: what that is given.

    `made`: the line that makes it. All None where the program does not show them.
    """

    operator: str
    shape: str
    size: int
    name: str | None
    call: str | None
    made: str | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        called = f", the backward of {self.call}," if self.call is not None else ""
        name = f"`{self.name}` {self.shape}" if self.name is not None else f"a tensor {self.shape}"
        made = f"; {self.made} makes it" if self.made is not None else ""
        return f"{self.operator}{called} was given {name}, of which size {self.size} is 0{made}"

    @property
    def advice(self) -> str:
        """The case to leave out."""
        name = f"`{self.name}`" if self.name is not None else "the tensor"
        what = self.call if self.call is not None else f"{self.operator}"
        rows = f"len({self.name}) == 0" if self.size == 0 else f"{self.name}.numel() == 0"
        test = f" (`if {rows}:`)" if self.name is not None else ""
        look = f" Look at the data for which {self.made} leaves none." if self.made is not None else ""
        loss = " (in a loss, return a 0 that keeps the graph: `x.sum() * 0`)" if self.call is not None else ""
        checks = "the forward takes an empty tensor, and its backward" if self.call is not None else self.operator
        return f"Leave {what} out where {name} has nothing in it{test}{loss}: {checks} does not check for one.{look}"


def empty_operand(view: ProcessView) -> EmptyOperand | None:
    """None where the operator is not torch's, or none of its tensors is empty."""
    operator = find_operator(view)
    empty = _empty(operator)
    if operator is None or empty is None:
        return None
    name = operator.name.partition("::")[2] or operator.name
    shape, size = shape_words(empty.item), empty.item.sizes.index(0)
    frames = program_frames(view)
    files = program_files(view.process.snapshot, frames)
    if not in_engine(view) or not name.endswith("_backward"):
        made = _made(view, files, empty.name, frames[0].file, frames[0].line) if frames and empty.name else None
        return EmptyOperand(name, shape, size, empty.name, None, made)
    forward = name.removesuffix("_backward").strip("_")
    calls = [
        (file, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and (called_name(item) or "").strip("_") == forward
    ]
    if len(calls) != 1:
        return EmptyOperand(name, shape, size, None, None, None)
    file, call = calls[0]
    given = _only_operand(files[file], call)
    held = variable(given) if given is not None else None
    operand = shortened(ast.unparse(given), _QUOTED) if given is not None else None
    text = place_of(view, file, call.lineno).after(f"`{shortened(ast.unparse(call), _QUOTED)}` at ")
    made = _made(view, files, held, file, call.lineno) if held else None
    return EmptyOperand(name, shape, size, operand, text, made)


def empty_of_forward(view: ProcessView) -> EmptyOperand | None:
    """Where a backward reads the memory that such a tensor does not have, and the program shows its forward."""
    found = empty_operand(view)
    return found if found is not None and found.call is not None else None


def _empty(operator: Operator | None) -> OperatorTensor | None:
    """Of several the one with most dimensions: the result and its gradient are empty as well."""
    if operator is None or not is_of_torch(operator):
        return None
    found = [item for item in operator.tensors if not item.item.undefined and 0 in item.item.sizes]
    return max(found, key=lambda item: (len(item.item.sizes), item.name is not None), default=None)


def _only_operand(tree: ast.Module, call: ast.Call) -> ast.expr | None:
    """What the forward works on; None where it is given several things that may be the tensor.

    The object of a method is one of them, the module that a function comes from is not: `import ... as func`.
    """
    given = passed_values(call)
    if isinstance(call.func, ast.Attribute) and imported_as(tree, call.func) is None:
        given.insert(0, call.func.value)
    tensors = [item for item in given if not isinstance(item, ast.Constant)]
    return tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], ast.Starred) else None


def _made(
    view: ProcessView, files: Mapping[str, ast.Module], name: str, file: str | None, line: int | None
) -> LineWords | None:
    """`line 36: `foreground = emb[identity >= 0]``."""
    tree = files.get(file or "")
    bound = bound_value(scope_of(tree, line), name, line) if tree is not None and line is not None else None
    if bound is None or bound[1] is None or not isinstance(bound[1], ast.expr):
        return None
    text = shortened(f"{name} = {ast.unparse(bound[1])}", _QUOTED)
    return place_of(view, file, bound[0]).quoted(text)
