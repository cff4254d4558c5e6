"""A backward() that reached no parameter: the line on the way to the loss that made a new tensor, without its graph."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.graph_lines import CUTS, head_of, lines_on_the_way, plain_statements
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_LEAF = Pattern(r"\brequires_grad\s*=\s*True|\.requires_grad_\(\s*(?:True)?\s*\)")
_MADE = Pattern(
    r"\.(?:detach|item|numpy|tolist)\(|\.data\b|(?:as_)?tensor\(|\bTensor\(|Variable\(|from_numpy\(|argmax\("
)
_MODEL = Pattern(r"parameters\(|\bnn\.|\bParameter\(|\.weight\b|\.bias\b")
_MOST = 2


class NewLeaf(msgspec.Struct, frozen=True):
    """`line 36`, its text; `loss`: whose backward() ends there; `cuts`: what else on the way leaves the graph."""

    place: str
    text: str
    loss: str
    cuts: tuple[str, ...]

    @property
    def advice(self) -> str:
        """How to keep the graph."""
        also = f"no {' and no '.join(self.cuts)}, and " if self.cuts else ""
        return (
            f"{self.place} (`{self.text}`) makes a new tensor, where backward() of `{self.loss}` ends: what it was "
            f"computed from gets no gradient. Keep the graph up to `{self.loss}`: {also}torch.stack() or a sum of the "
            "tensors in place of a new one."
        )


def new_leaf(at: FailingLine) -> NewLeaf | None:
    """The only one on the way to the loss whose backward() came last before the line."""
    loss = _loss(at)
    if loss is None:
        return None
    way = lines_on_the_way(at, loss)
    on_way = [item for item in plain_statements(at.tree) if item.lineno in way and not _MODEL.search(head_of(item))]
    leaves = {item.lineno: item for item in on_way if _LEAF.search(head_of(item)) and _of_values(item)}
    if len(leaves) != 1:
        return None
    line, item = next(iter(leaves.items()))
    found = ((other, CUTS.search(head_of(other))) for other in on_way if other.lineno != line)
    cuts = [
        f"`{cut[0]}{')' * cut[0].endswith('(')}` at {at.here(other.lineno)}" for other, cut in found if cut is not None
    ]
    told = tuple(cuts) if len(cuts) <= _MOST else ()
    return NewLeaf(at.here(line), source(item), loss, told)


def _of_values(item: ast.stmt) -> bool:
    """Not a perturbation or a constant that is to be learnt: those are made of no other values."""
    value = getattr(item, "value", None)
    return value is not None and _MADE.search(ast.unparse(value)) is not None and bool(names_in(value))


def _loss(at: FailingLine) -> str | None:
    """Of `loss.backward()`, `scaler.scale(loss).backward()`, `accelerator.backward(loss)`."""
    calls = [
        item
        for item in own_nodes(at.scope)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "backward"
        if item.lineno < at.line
    ]
    last = max(calls, key=lambda item: item.lineno, default=None)
    if last is None or not isinstance(last.func, ast.Attribute):
        return None
    owner = last.func.value
    if isinstance(owner, ast.Call) and called_name(owner) == "scale" and owner.args:
        owner = owner.args[0]
    elif last.args:
        owner = last.args[0]
    return next(iter(names_in(owner)), None)
