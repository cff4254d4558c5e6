"""A tensor that the forward saved for a backward node, and whose memory was taken away before the backward.

Offloading and "free after use" resize a storage to 0 when a layer is done. Autograd keeps the tensor, not its memory:
the node reads null. The tensor has no variable at the line of backward(); it is named by its size among the parameters
that have no memory any more, and by the line of the source that gives one of them to the node's operator.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.emptied import emptied_at, only_line
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.in_backward import backward, saved_words
from pytracer.analyze.evidence.operators.operator import Operator, shape_words, without_memory
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, NamedTensor

_NODE = Pattern(r"^(?:Native)?(\w+?)(?:Kernel)?Backward\d*$")
_SIGNS: dict[str, type[ast.operator]] = {"Mul": ast.Mult, "Div": ast.Div, "Mm": ast.MatMult, "Pow": ast.Pow}
_ROLES = ("parameter", "buffer")
_QUOTED, _MOST_NAMES = 60, 2


class SavedWithoutMemory(msgspec.Struct, frozen=True):
    """`name`: `` `blocks.*.gamma` ``, None where it is not known; `shape`: `[256] float32`; `use`: the line it is of.

    `saved`: `which the forward saved for MulBackward0`. `taken`: the line that took the memory away. `line`: of the
    program, that runs the backward.
    """

    name: str | None
    shape: str
    use: str | None
    saved: str
    taken: str | None
    line: int
    elements: int
    is_parameter: bool

    @property
    def summary(self) -> str:
        """For the headline."""
        what = f"{self.name} ({self.shape})" if self.name is not None else f"the {self.shape}"
        gone = f" any more: {self.taken} took it away" if self.taken is not None else ""
        return f"{what}, {self.saved}, has no memory{gone}"

    @property
    def advice(self) -> str:
        """The two places where it can be changed."""
        what = self.name or f"the saved {self.shape}"
        by = f" of {self.use}" if self.use is not None else ""
        back = (
            f"Autograd still needs {what}{by} in the backward of line {self.line}. Give it its memory back before that "
            "(resize_() of its storage to the old size, then copy_()"
            f"{', such as in register_full_backward_pre_hook() of its layer' if self.is_parameter else ''})"
        )
        only = (
            f"run {self.taken} only where torch.is_grad_enabled() is false, or after the backward"
            if self.taken is not None
            else "take the memory away after the backward only"
        )
        return (
            f"{back}, or {only}. torch.autograd.graph.saved_tensors_hooks moves what autograd saved and brings it back."
        )


def saved_without_memory(view: ProcessView, operator: Operator | None) -> SavedWithoutMemory | None:
    """None outside of autograd's engine, and unless just one size of tensor lacks the memory of its elements."""
    lacking = [item.item for item in without_memory(operator) if item.item.elements]
    found = backward(view)
    if found is None or found.node is None or "AccumulateGrad" in found.node:
        return None  # a gradient is none of the forward's
    if len({(item.sizes, item.dtype) for item in lacking}) != 1:
        return None
    item = lacking[0]
    name, use = _variable(view, item.elements), None
    is_parameter = name is None and bool(_emptied_names(view, item))
    if is_parameter:
        name, use = _parameter(view, _emptied_names(view, item), found.node)
    at = emptied_at(view, item.elements)
    only = only_line(view) if at is None else None
    return SavedWithoutMemory(
        name,
        f"{shape_words(item)} {item.dtype}",
        use,
        saved_words(found),
        only.at if only is not None else at,
        found.line,
        item.elements,
        is_parameter,
    )


def _variable(view: ProcessView, elements: int) -> str | None:
    """The only variable of the program that held a tensor of so many elements without memory."""
    crash = view.crash
    held = {
        plain_expression(item.expression)
        for item in (crash.holders if crash is not None else ())
        if not item.base and item.elements == elements and item.frame is not None
        if not is_library_file(item.frame.file) and item.kind in ("local", "cell", "global")
    }
    return f"`{held.pop()}`" if len(held) == 1 else None


def _emptied_names(view: ProcessView, item: Argument) -> list[str]:
    """Parameters and buffers of its size that the crash handler found no memory of: `blocks.0.gamma`."""
    crash, nbytes = view.crash, item.elements * (item.element_bytes or 0)
    if crash is None or "NAMES" not in crash.steps_done or not nbytes:
        return []
    latest: dict[str, NamedTensor] = {}
    for named in (one for items in view.process.snapshot.named.values() for one in items if one.role in _ROLES):
        if named.name not in latest or named.epoch > latest[named.name].epoch:
            latest[named.name] = named
    last = max((one.epoch for one in latest.values()), default=0)
    gone = [one for one in latest.values() if one.epoch < last and one.nbytes == nbytes]
    return [one.name.removeprefix(f"{one.role} ") for one in gone]


def _parameter(view: ProcessView, names: Sequence[str], node: str | None) -> tuple[str | None, str | None]:
    """Its name, and the line that gives it to the operator of the node."""
    attributes = {name.rpartition(".")[2] for name in names}
    uses = {(name, words) for name, words in _uses(view, attributes, node)}
    if len(uses) == 1:
        attribute, words = uses.pop()
        return _pattern([name for name in names if name.rpartition(".")[2] == attribute]), words
    # What is only added is not saved; a normalization saves its bias.
    kept = [name for name in names if name.rpartition(".")[2] != "bias"] or list(names)
    patterns = list(dict.fromkeys(_pattern([name for name in kept if _of(name) == one]) for one in map(_of, kept)))
    return (list_words(patterns, conjunction="or"), None) if len(patterns) <= _MOST_NAMES else (None, None)


def _of(name: str) -> str:
    """`linear.bias` of `blocks.0.linear.bias`: without what is before the last number."""
    return re.split(r"(?:^|\.)\d+(?:\.|$)", name)[-1] or name


def _pattern(names: Sequence[str]) -> str:
    """`` `blocks.*.gamma` ``."""
    parts = [name.split(".") for name in names]
    if len(names) == 1 or len({len(item) for item in parts}) != 1:
        return f"`{names[0]}`" if len(names) == 1 else f"`{_of(names[0])}`"
    return f"`{'.'.join(one.pop() if len(one := set(column)) == 1 else '*' for column in zip(*parts, strict=True))}`"


def _uses(view: ProcessView, attributes: set[str], node: str | None) -> Iterator[tuple[str, str]]:
    """The attributes of `self` among them that a line gives to the operator, each with that line."""
    stem = _NODE.match(node or "")
    if stem is None:
        return
    for file, tree in program_files(view.process.snapshot, program_frames(view)).items():
        for part in nodes_of(tree):
            operands = _operands(part, stem[1])
            for item in operands:
                if isinstance(item, ast.Attribute) and item.attr in attributes and isinstance(part, ast.expr):
                    text = shortened(ast.unparse(part), _QUOTED)
                    yield item.attr, place_of(view, file, part.lineno).quoted(text)


def _operands(part: ast.AST, stem: str) -> list[ast.expr]:
    sign = _SIGNS.get(stem)
    if sign is not None and isinstance(part, ast.BinOp) and isinstance(part.op, sign):
        return [part.left, part.right]
    if isinstance(part, ast.Call) and (called_name(part) or "").replace("_", "").lower() == stem.lower():
        of = [part.func.value] if isinstance(part.func, ast.Attribute) else []
        return [*of, *passed_values(part)]
    return []
