"""A crash in the backward pass: the tensors of the operator are those that the forward saved, not those of the line.

What is wrong with one is that it has changed since the forward, which ran with it: memory that NumPy shares was written
to, or a hook of saved_tensors_hooks returned another tensor than it was given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.name_origins import NameOrigin, follow
from pytracer.analyze.evidence.indices.index_origins import narrow_words
from pytracer.analyze.evidence.lifetime.shared_writes import shared_write
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import is_shared_with_others, line_that_made, place_of
from pytracer.analyze.evidence.operators.operator import OperatorTensor, below_python, shape_words
from pytracer.analyze.evidence.preconditions.unchecked_forward import unchecked_advice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_ENGINE = "torch::autograd::Engine"
_HOOKS = "saved_tensors_hooks"
_QUOTED, _PAIR = 50, 2
_REDUCES = ("mean", "sum", "max", "min", "norm", "clone", "float")


class Backward(msgspec.Struct, frozen=True):
    """`line`: of the program, that runs it. `forward`: the line that made what it starts from. `unpack`: the hook."""

    line: int
    node: str | None
    forward: NameOrigin | None
    unpack: str | None

    @property
    def between(self) -> str:
        """` between line 40 (`loss = ...`) and line 43`, where both are of one function; else ` before line 43`."""
        if self.forward is None:
            return f" before line {self.line}"
        text = shortened(self.forward.text, _QUOTED)
        return f" between line {self.forward.frame.line} (`{text}`) and line {self.line}"


def backward(view: ProcessView) -> Backward | None:
    """None where autograd's engine was not running, or the program's line is not known."""
    crash, frames = view.crash, program_frames(view)
    if crash is None or not frames or frames[0].line is None or not in_engine(view):
        return None
    tree = syntax_tree(view.process.snapshot, frames[0])
    names = names_of_line(tree, frames[0].line) if tree is not None else []
    found = follow(view.process.snapshot, frames[:1], names[0], None) if len(names) == 1 else None
    line = found.frame.line if found is not None else None
    above = found is not None and line is not None and line < frames[0].line
    forward = found if found is not None and above and _may_run(found.text, crash.node) else None
    return Backward(frames[0].line, crash.node, forward, _unpack(view, frames))


def _may_run(text: str, node: str | None) -> bool:
    """Whether a line may have run the operator of a node: it calls a model, or that operator; not torch's others alone.

    `total = torch.stack(losses).mean()` begins a backward pass, and its operators are long before it.
    """
    try:
        calls = [item for item in nodes_of(ast.parse(text)) if isinstance(item, ast.Call)]
    except SyntaxError:  # of a statement of several lines
        return "(" in text
    operator = (node or "").partition("Backward")[0].lower()
    named = {(called_name(item) or "").replace("_", "") for item in calls}
    others = [item for item in calls if not _is_of_torch(item)]
    return bool(others) or (bool(operator) and operator in named)


def _is_of_torch(call: ast.Call) -> bool:
    """`torch.stack(x)`, `F.relu(x)`, and a method of what these return, or of a plain variable that only reduces it."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    if isinstance(owner, ast.Call):
        return _is_of_torch(owner)
    return ast.unparse(owner) in ("torch", "F", "torch.nn.functional") or call.func.attr in _REDUCES


def in_engine(view: ProcessView) -> bool:
    """On the crashed thread, or on the one that opened its parallel region; not around a backward() in Python."""
    crash, opener = view.crash, view.region_opener
    if crash is None:
        return False
    of_opener = (item.native_stack for item in crash.threads if opener is not None and item.tid == opener.tid)
    stacks = (crash.native_stack, *of_opener)
    return any(_ENGINE in name for stack in stacks for name in below_python(stack))


def _unpack(view: ProcessView, frames: list[PythonFrame]) -> str | None:
    """`unpack() (line 24)`: the program's hook, where there is one."""
    found = set()
    for file, frame in {frame.file: frame for frame in frames}.items():
        tree = syntax_tree(view.process.snapshot, frame)
        for name in _hooks(tree) if tree is not None else ():
            function = function_named(tree, name) if tree is not None else None
            if function is not None:
                found.add(f"{name}() ({place_of(view, file, function.lineno)})")
    return found.pop() if len(found) == 1 else None


def _hooks(tree: ast.Module) -> Iterator[str]:
    """Names of the second argument of saved_tensors_hooks(), also as the base of a class."""
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == _HOOKS]
    for owner in (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef)):
        if any(ast.unparse(base).endswith(_HOOKS) for base in owner.bases):
            calls += [
                item for item in nodes_of(owner) if isinstance(item, ast.Call) and called_name(item) == "__init__"
            ]
    for call in calls:
        hook = call.args[1] if len(call.args) == _PAIR else None
        name = getattr(hook, "attr", None) or getattr(hook, "id", None)
        if name is not None:
            yield name


def saved_words(found: Backward) -> str:
    """`which the forward saved for EmbeddingBagBackward0`."""
    return f"which the forward saved{f' for {found.node}' if found.node else ''}"


def saved_advice(view: ProcessView, found: Backward, item: OperatorTensor) -> str:
    """About a tensor of integers whose values lead out of another one."""
    name = f"`{item.name}`" if item.name else f"the saved {shape_words(item.item)} {item.item.dtype}"
    low, high = item.item.minimum, item.item.maximum
    values = f" ({low}..{high}{narrow_words(item)})" if low is not None else ""
    if item.name is None and found.unpack is not None:
        return (
            f"Check what {found.unpack} returns to the backward of line {found.line}: {name}{values} must be what the "
            "forward saved."
        )
    write = shared_write(view, item.item.base)
    if write is not None:
        return (
            f"Clone what {write.lender}() returns at {write.lent}, or use another array each time: {write.words}, and "
            f"{name}{values}, {saved_words(found)}, has its memory. torch does not see what NumPy writes."
        )
    unchecked = unchecked_advice(view, found.node, item)
    if unchecked is not None:
        return unchecked
    if item.name is not None and is_shared_with_others(view, item.item.base):
        made = line_that_made(view, item.item.base, quote=False)
        since = f" at {made}" if made is not None else ""
        return (
            f"Clone {name}{since}, or write into its memory after line {found.line} only: {name}{values}, "
            f"{saved_words(found)}, was probably overwritten{found.between}."
        )
    return (
        f"Look for what changed {name}{values}, {saved_words(found)},{found.between}: the forward ran with it. Writes "
        "by .data, NumPy or another thread are unseen by torch."
    )


def unequal_advice(found: Backward, unequal: str) -> str:
    """Of tensors of the backward function whose sizes do not fit."""
    return (
        f"Compare the shapes of {unequal}: the backward function takes one size for both, and leaves the smaller one. "
        f"{changed_advice(found)}"
    )


def changed_advice(found: Backward) -> str:
    """Where no tensor is known: what the operator works on, and how that may have changed."""
    if found.unpack is not None:
        return (
            f"Check what {found.unpack} returns to the backward of line {found.line}: each tensor must have the shape "
            "and the values that the forward saved."
        )
    return (
        f"Check the tensors, {saved_words(found)}: their values (isfinite(), min(), max()), and what may have changed "
        f"them{found.between}. Writes by .data, NumPy or another thread, set_() and resize_() are unseen by torch."
    )
