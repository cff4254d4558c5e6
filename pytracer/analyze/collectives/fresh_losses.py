"""Losses that are new tensors: backward() of one reaches no parameter, so DistributedDataParallel reduces nothing.

`return torch.tensor(0.0, requires_grad=True)` for a batch without targets makes one rank leave out what others call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec

from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_MADE = frozenset({"tensor", "zeros", "ones", "full", "zeros_like", "new_zeros", "new_tensor", "as_tensor", "Variable"})
_BACKWARD = ("backward", "manual_backward")


class FreshLoss(msgspec.Struct, frozen=True):
    """`text`: the expression that makes the tensor."""

    line: int
    text: str

    @property
    def subject(self) -> str:
        """For the headline."""
        return f"line {self.line} gives a loss that no parameter is behind (`{self.text}`)"

    @property
    def advice(self) -> str:
        """What to write in its place."""
        return (
            f"Line {self.line} gives a new tensor as the loss (`{self.text}`), and no parameter is behind it: its "
            "backward() reduces no gradients, while the other ranks wait for theirs. Compute it from the outputs of "
            "the model, with every parameter in it (`outputs.sum() * 0`), so that all ranks reduce in each step."
        )


def fresh_loss(snapshot: Snapshot, frame: PythonFrame) -> FreshLoss | None:
    """Of a line that calls backward(): the only place in its file that gives such a loss on a branch."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    scope = scope_of(tree, frame.line)
    calls = [item for item in own_nodes(scope) if isinstance(item, ast.Call) and spans(item, frame.line)]
    backward = next((item for item in calls if called_name(item) in _BACKWARD), None)
    if backward is None:
        return None
    losses = {item.id for item in nodes_of(backward) if isinstance(item, ast.Name)}
    found = {item.lineno: item for item in _given(tree, own_nodes(scope), losses)}
    if len(found) != 1:
        return None
    line, made = next(iter(found.items()))
    return FreshLoss(line, short(ast.unparse(made)))


def _given(tree: ast.Module, around: Iterable[ast.AST], losses: set[str]) -> Iterator[ast.expr]:
    """What functions of the file return on a branch, and what the function itself has as its loss on one."""
    for function in nodes_of(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for branch in own_nodes(function):
                if isinstance(branch, (ast.If, ast.ExceptHandler)):
                    yield from _returned(function, branch)
    for branch in around:
        if isinstance(branch, (ast.If, ast.ExceptHandler)):
            yield from (value for name, value in _assigned(branch) if name in losses)


def _returned(function: ast.AST, branch: ast.AST) -> Iterator[ast.expr]:
    for item in nodes_of(branch):
        if isinstance(item, ast.Return) and item.value is not None and _is_fresh(item.value):
            yield item.value
    names = {variable(item.value) for item in own_nodes(function) if isinstance(item, ast.Return) and item.value}
    yield from (value for name, value in _assigned(branch) if name in names)


def _assigned(branch: ast.AST) -> Iterator[tuple[str | None, ast.expr]]:
    for item in nodes_of(branch):
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and _is_fresh(item.value):
            yield variable(item.targets[0]), item.value


def _is_fresh(value: ast.expr) -> bool:
    """`torch.zeros(1, requires_grad=True)`, `torch.tensor(0.0).to(device).requires_grad_()`."""
    graded = False
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        graded = graded or value.func.attr == "requires_grad_" or _asks_for_gradient(value)
        if value.func.attr in _MADE:
            return graded
        value = value.func.value
    return False


def _asks_for_gradient(call: ast.Call) -> bool:
    return any(
        item.arg == "requires_grad" and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in call.keywords
    )
