"""Two losses of one step that were computed from the same tensor: the first backward() freed the graph that both need.

A GAN's generator is the usual case: its output goes into the loss of the discriminator without detach().
"""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes

_CUT = Pattern(r"\.(?:detach|item|data|argmax|numpy)\b|no_grad")
# What has no graph: data, and what is filled or read.
_NO_GRAPH = Pattern(
    r"^torch\.(?:triu|tril|eye|ones_like|zeros_like|rand\w*_like|as_tensor|arange|stack|cat)$|mask|target|label"
)
_LEAF = Pattern(r"^torch\.(?:\w*rand\w*|zeros|ones|tensor|full|empty|arange|linspace|load|from_numpy)$|^next$|\.to$")


def shared_graph(at: FailingLine) -> str | None:
    """The tensor, and the line of the first loss that uses it."""
    second = _loss(at.only(ast.Call))
    freed = _freed_by_grad(at, second) if second is not None else None
    if freed is not None:
        return freed
    earlier = [
        item
        for item in own_nodes(at.scope)
        if isinstance(item, ast.Call) and called_name(item) == "backward" and item.lineno < at.line
    ]
    if second is None or len(earlier) != 1 or any(item.arg == "retain_graph" for item in earlier[0].keywords):
        return None
    first = _loss(earlier[0])
    if first is None or first == second:
        return None
    ways = [_way(at.scope, name, line) for name, line in ((first, earlier[0].lineno), (second, at.line))]
    both = [item for item in ways[1].values() if item in ways[0].values()]
    calls = [item for item in both if isinstance(item.value, ast.Call)]
    shared = [item for item in calls if not _LEAF.search(ast.unparse(getattr(item.value, "func", item.value)))]
    shared = [item for item in shared if not _NO_GRAPH.search(variable(item.targets[0]) or "")]
    shared = [item for item in shared if not _NO_GRAPH.search(ast.unparse(getattr(item.value, "func", item.value)))]
    if not shared:
        return None
    made = max(shared, key=lambda item: item.lineno)
    name = variable(made.targets[0]) or ""
    uses = [item for item in ways[0].values() if name in names_in(item.value) and item is not made]
    if not uses or made.lineno >= earlier[0].lineno:
        return None
    freed = (
        f"`{name}` ({at.here(made.lineno)}: `{source(made)}`) is part of `{first}` as of `{second}`: "
        f"backward() at line {earlier[0].lineno} has freed its graph."
    )
    cut = f"`{name}.detach()` at line {min(item.lineno for item in uses)}"
    alone = any(_is_handed(item.value, name) for item in uses)
    if not alone and not _is_stepped(at.scope, earlier[0].lineno, at.line):
        return (
            f"{freed} Call one backward() for both: `({first} + {second}).backward()`. Where `{first}` trains only "
            f"what reads `{name}`, use {cut}."
        )
    return (
        f"{freed} Where the first shall not train what made it, use {cut}; else add both losses before one backward()."
    )


def _freed_by_grad(at: FailingLine, loss: str) -> str | None:
    """`torch.autograd.grad(out, x)` of a penalty, which frees the graph of `out` like a backward()."""
    way = _way(at.scope, loss, at.line)
    read = {name for item in way.values() for name in names_in(item.value)}
    for call in own_nodes(at.scope):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("autograd.grad"):
            continue
        kept = {item.arg for item in call.keywords} & {"retain_graph", "create_graph", None}
        outputs = argument_at(call, 0, "outputs")
        name = outputs.id if isinstance(outputs, ast.Name) else None
        if kept or name is None or name not in read or not way[loss].lineno >= call.lineno:
            continue
        if _is_left_out(at, call.lineno) or any(
            call.lineno < line <= way[loss].lineno for line, _ in lines_that_bind(at.scope, name)
        ):  # another one by then
            continue
        return (
            f"{at.here(call.lineno).capitalize()} (`{source(call)}`) has freed the graph of `{name}`, of which "
            f"`{loss}` ({at.here(way[loss].lineno)}) is made. Pass create_graph=True there, where what it gives shall "
            "be part of the loss, as in a gradient penalty; else retain_graph=True."
        )
    return None


def _is_left_out(at: FailingLine, line: int) -> bool:
    """Whether a line is below a condition that the failing line is not below: it may not have run."""
    ifs = [item for item in own_nodes(at.scope) if isinstance(item, ast.If)]
    return any(item.lineno < line <= (item.end_lineno or 0) < at.line for item in ifs)


def _is_handed(node: ast.expr, name: str) -> bool:
    """Whether another model may take it: `d(fake)`."""
    calls = (item for item in nodes_of(node) if isinstance(item, ast.Call) and len(item.args) == 1)
    return any(isinstance(item.args[0], ast.Name) and item.args[0].id == name for item in calls)


def _is_stepped(scope: Scope, first: int, last: int) -> bool:
    """Whether an optimizer takes a step between two lines, so that each loss has its own, as in a GAN."""
    return any(
        isinstance(item, ast.Call) and called_name(item) == "step" and first < item.lineno < last
        for item in own_nodes(scope)
    )


def _loss(call: ast.Call | None) -> str | None:
    """`loss` of `loss.backward()` and of `scaler.scale(loss).backward()`."""
    if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
        return None
    owner = call.func.value
    if isinstance(owner, ast.Call) and len(owner.args) == 1:
        owner = owner.args[0]
    return owner.id if isinstance(owner, ast.Name) else None


def _way(scope: Scope, name: str, line: int) -> dict[str, ast.Assign]:
    """The statements above a line that a variable was computed by, by what they set; not behind a detach()."""
    sets = [item for item in own_nodes(scope) if isinstance(item, ast.Assign) and item.lineno < line]
    found: dict[str, ast.Assign] = {}
    waiting = [(name, line)]
    while waiting:
        wanted, before = waiting.pop()
        last = [item for item in sets if item.lineno < before and variable(item.targets[0]) == wanted]
        if not last or wanted in found:
            continue
        item = max(last, key=lambda item: item.lineno)
        found[wanted] = item
        if not _CUT.search(ast.unparse(item.value)):
            waiting += [(part, item.lineno) for part in names_in(item.value)]
    return found
