"""A loss without a graph: what switched gradients off, froze the parameters, or cut the way to it."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.autograd.graph_lines import (
    CUTS,
    FREEZES,
    bound_names,
    head_of,
    is_below_switch,
    lines_of_functions,
    lines_on_the_way,
    plain_statements,
)
from pytracer.analyze.evidence.failing.autograd.reentrant import reentrant_checkpoint
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.cut_values import names_switch
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import outcome
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of

_NONE_TRAINED = Pattern(r"0 of ([1-9]\d*) require a gradient$")
_SOME_TRAINED = Pattern(r"[1-9]\d* of [1-9]\d* require a gradient$")
_SWITCH = Pattern(r"set_grad_enabled\(|(?:no_grad|inference_mode)\(.*__enter__\(")
_THRESHOLD = Pattern(
    r"\((?:\w+\.)*\w*(?:sigmoid|softmax|tanh)\(.{0,60}\) [<>]=? [\w.]+\)|round\((?:\w+\.)*\w*(?:sigmoid|softmax|tanh)\("
)
_MODE = Pattern(r"set_grad_enabled\((?!(?:mode=)?True)")
_METRICS = Pattern(r"Acc(?:uracy)?\b|Metric|IoU|F1|Precision|Recall|Predict")
_INSTEAD = {
    "set_grad_enabled(": "Call backward() and the optimizer's step() only where its condition holds, in an `if` of it",
    "torch.tensor(": "torch.tensor() copies the numbers only: torch.stack() of the tensors, or their sum, has a graph",
    "argmax(": "argmax() has no gradient: compute the loss from the scores, or from their softmax()",
    ".item()": "A number of Python has no graph: leave out .item() in what the loss is made of",
}
_MOST = 2


def cut_graph(at: FailingLine) -> str | None:
    """Why a loss has no graph: by what is switched off, frozen, or on the way to it."""
    if at.values.get("torch.is_grad_enabled()") == "False":
        return _switched_off(at)
    loss = _loss_of(at)
    return (
        _of_input(at)
        or _frozen(at, loss)
        or _graph_lost(at, loss)
        or reentrant_checkpoint(at, loss)
        or _off_by_mode(at, loss)
        or _cutting_lines(at, loss)
        or _thresholds(at, loss)
    )


def _loss_of(at: FailingLine) -> str:
    """`loss` of `loss.backward()`, `scaler.scale(loss).backward()` and `torch.autograd.grad(loss, x)`."""
    call = at.only(ast.Call)
    given = call.args[:1] if call is not None else []
    if call is not None and isinstance(call.func, ast.Attribute) and not given:
        given = [call.func.value]
    while given and isinstance(given[0], ast.Call) and called_name(given[0]) == "scale" and given[0].args:
        given = given[0].args[:1]
    return next(iter(names_in(given[0] if given else at.node or ast.Pass())), "the loss")


def _of_input(at: FailingLine) -> str | None:
    """torch.autograd.grad() by a tensor that does not require a gradient, as images of an attack."""
    call = at.only(ast.Call)
    if call is None or called_name(call) != "grad":
        return None
    by = argument_at(call, 1, "inputs")
    if not isinstance(by, ast.Name) or at.values.get(f"{by.id}.requires_grad") != "False":
        return None
    return (
        f"`{by.id}`{at.came(by.id)}, by which line {at.line} differentiates, does not require a gradient: write "
        f"`{by.id}.requires_grad_()` before the forward (of a result, `{by.id} = {by.id}.detach().requires_grad_()`)."
    )


def _switched_off(at: FailingLine) -> str | None:
    """The line that switched gradients off, and the way on which nothing switches them on."""
    if any(is_below_switch(at, depth) for depth in range(len(at.frames))):
        return None
    calls = [
        (scope, item)
        for scope in (at.tree, *(part for part in nodes_of(at.tree) if isinstance(part, ast.FunctionDef)))
        for item in own_nodes(scope)
        if isinstance(item, ast.Expr) and _SWITCH.search(ast.unparse(item))
    ]
    off = [(scope, item) for scope, item in calls if not _is_on(item)]
    now = "Gradients are switched off (torch.is_grad_enabled() is False), so that no operation records a graph"
    how = "use `with torch.no_grad():` or @torch.no_grad(), which end on every way out"
    if len(off) != 1:
        return None
    scope, item = off[0]
    where = f"{at.here(item.lineno)} (`{source(item)}`) does that"
    name = f"{scope.name}()" if isinstance(scope, ast.FunctionDef) else "the program"
    on = [part.lineno for part in own_nodes(scope) if isinstance(part, ast.Expr) and _is_on(part)]
    on = [line for line in on if line > item.lineno]
    leaves = [
        part.lineno
        for part in own_nodes(scope)
        if isinstance(part, (ast.Return, ast.Raise)) and item.lineno < part.lineno < (on[0] if on else 0)
    ]
    if leaves:
        return (
            f"{now}: {where}, and {name} leaves at {at.here(leaves[0])}, before {at.here(on[0])} undoes it. "
            f"There, {how}."
        )
    if on:
        return f"{now}: {where}, and {at.here(on[0])}, which undoes it, was not reached: {how}."
    return f"{now}: {where}, and no line of {name} undoes it: {how}."


def _is_on(item: ast.Expr) -> bool:
    return re.search(r"set_grad_enabled\((?:mode=)?True\)|__exit__", ast.unparse(item)) is not None


def _frozen(at: FailingLine, loss: str) -> str | None:
    """Every parameter of a module of the frame."""
    none = {name: found[1] for name, value in at.values.items()
            if (found := _NONE_TRAINED.match(value)) is not None and name.startswith("parameters of ")}  # fmt: skip
    some = any(value.endswith("require a gradient") and not _NONE_TRAINED.match(value) for value in at.values.values())
    if len(none) != 1 or some:
        return None
    name = next(iter(none)).removeprefix("parameters of ")
    lines = {item.lineno: source(item) for item in plain_statements(at.tree) if FREEZES.search(head_of(item))}
    by = (
        " or ".join(f"{at.here(number)} (`{lines[number]}`)" for number in sorted(lines)) if len(lines) <= _MOST else ""
    )
    sure = len(lines) == 1 and _freezes(at, name, next(iter(lines)))
    how = f", as {by} freezes them" if by and sure else f" ({by} may freeze them)" if by else ""
    return (
        f"None of the {none[f'parameters of {name}']} parameters of `{name}` requires a "
        f"gradient{how}, so that `{loss}`{at.came(loss)} has no graph. Leave those "
        "that shall be trained with requires_grad=True, and give the optimizer these."
    )


def _freezes(at: FailingLine, name: str, line: int) -> bool:
    """Whether a line freezes all of that module: it, or the loop around the line, names it."""
    around = [
        item for item in nodes_of(at.tree) if isinstance(item, ast.For) and item.lineno < line <= (item.end_lineno or 0)
    ]
    own = [item for item in plain_statements(at.tree) if item.lineno == line]
    read = [*own, *(item.iter for item in around)]
    return any(name in names_in(item) for item in read)


def _graph_lost(at: FailingLine, loss: str) -> str | None:
    """A tensor with a graph that the loss was computed from."""
    found = at.made(loss, calls=False)
    if found is None or at.values.get(f"{loss}.requires_grad") != "False" or found.spot.depth != 0:
        return None
    with_graph = [name for name in names_in(found.node) if at.values.get(f"{name}.requires_grad") == "True"]
    sizes = re.compile(r"\blen\(|\.(?:shape|size|device|dtype|ndim|numel)\b|_like\(")
    if not with_graph or found.line == at.line or sizes.search(ast.unparse(found.node)):
        return None
    around = [
        item
        for item in own_nodes(found.spot.scope)
        if isinstance(item, (ast.With, ast.AsyncWith)) and item.lineno < found.line <= (item.end_lineno or 0)
        if CUTS.search(head_of(item))
    ]
    words = f"`{with_graph[0]}` requires a gradient, and `{loss}` ({at.shown(found)}), made of it, does not"
    by = found.spot.scope.decorator_list if isinstance(found.spot.scope, ast.FunctionDef) else []
    off = next((item for item in by if names_switch(item)), None)
    if off is not None and isinstance(found.spot.scope, ast.FunctionDef):
        name = found.spot.scope.name
        return f"{words}: {at.here(off.lineno)} (`@{source(off)}` of {name}()) keeps it from one. Take it away."
    if not around and any(is_below_switch(at, depth) for depth in range(1, len(at.frames))):
        return None
    if around:
        return (
            f"{words}: line {around[-1].lineno} (`{head_of(around[-1])}`) cuts the graph. Compute it outside of that."
        )
    return (
        f"{words}: something at that line cuts the graph. Compute it by torch's differentiable operations alone there "
        "(no argmax, .item(), .detach(), torch.tensor(), numpy, comparison or no_grad())."
    )


def _off_by_mode(at: FailingLine, loss: str) -> str | None:
    """`with torch.set_grad_enabled(phase == "train"):`, which came out as False."""
    way = lines_on_the_way(at, loss)
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        for item in own_nodes(spot.scope) if spot is not None else ():
            if spot is None or not isinstance(item, ast.With) or item.lineno not in way or not _is_mode(item):
                continue
            call = item.items[0].context_expr
            test = argument_at(call, 0, "mode") if isinstance(call, ast.Call) else None
            if test is None or not _is_false(at, test, spot):
                continue
            held = [name for name in names_in(test) if name in at.values_at(depth)]
            values = list_words([f"`{name}` is {at.values_at(depth)[name]}" for name in held])
            where = f"{at.place(spot, item.lineno)} (`{source(call)}`)"
            return (
                f"`{loss}` has no graph, as {where} switches gradients off{f': {values}' if values else ''}. Call "
                f"backward() and the optimizer's step() only where it switches them on (`if {source(test)}:`)."
            )
    return None


def _is_false(at: FailingLine, test: ast.expr, spot: Spot) -> bool:
    def value(node: ast.expr) -> str | None:
        return at.value_at(node, spot)

    return outcome(test, value) is False


def _cutting_lines(at: FailingLine, loss: str) -> str | None:
    """The statements on the way to the loss that can cut it, where they are few."""
    way = lines_on_the_way(at, loss)
    found = {
        item.lineno: f"{at.here(item.lineno)} (`{source(item) if not isinstance(item, ast.With) else head_of(item)}`)"
        for item in plain_statements(at.tree)
        if FREEZES.search(head_of(item)) or (item.lineno in way and (CUTS.search(head_of(item)) or _is_mode(item)))
    }
    for item in nodes_of(at.tree):
        for by in item.decorator_list if isinstance(item, ast.FunctionDef) and item.lineno in way else ():
            if CUTS.search(ast.unparse(by)):
                found[by.lineno] = f"{at.here(by.lineno)} (`@{source(by)}` of {item.name}())"  # type: ignore[attr-defined]
    lines = [found[number] for number in sorted(found)]
    if any(map(_SOME_TRAINED.match, at.values.values())):
        lines = [text for text in lines if "requires_grad" not in text]  # these leave others their graph
    if not lines or len(lines) > _MOST:
        return None
    came = at.came(loss) if len(found) > 1 or f"({at.here(min(found))}:" not in at.came(loss) else ""
    frozen = ", or leave some parameters trainable" if any("requires_grad" in text for text in lines) else ""
    instead = next((words for part, words in _INSTEAD.items() if len(lines) == 1 and part in lines[0]), None)
    return (
        f"`{loss}`{came} has no graph, which {' or '.join(lines)} on the way to it can cut. "
        f"{instead or f'Keep it out of the way from the parameters to the loss{frozen}'}."
    )


def _is_mode(item: ast.stmt) -> bool:
    """`with torch.set_grad_enabled(phase == "train"):`."""
    return isinstance(item, ast.With) and _MODE.search(head_of(item)) is not None


def _thresholds(at: FailingLine, loss: str) -> str | None:
    """The one line on the way to the loss, or of a forward(), that compares or rounds what the model gives."""
    found: dict[tuple[str, int], ast.stmt] = {}
    for file, tree in at.files.items():
        way = lines_on_the_way(at, loss) if file == at.frame.file else lines_of_functions(tree, [])
        for item in plain_statements(tree):
            if FREEZES.search(head_of(item)) or (item.lineno in way and CUTS.search(head_of(item))):
                return None
            if item.lineno in way and _THRESHOLD.search(head_of(item)) and _is_of_loss(tree, item):
                found[file, item.lineno] = item
    if len(found) != 1:
        return None
    (file, line), statement = next(iter(found.items()))
    return (
        f"`{loss}` has no graph, which {at.in_file(file, line)} (`{source(statement)}`) can cut, as a comparison or "
        "rounding has no gradient. Compute the loss from the probabilities themselves, and use the threshold for "
        "metrics alone."
    )


def _is_of_loss(tree: ast.Module, statement: ast.stmt) -> bool:
    """Whether a loss may read what the statement makes: what an evaluation or a metric returns is for none."""
    scope = scope_of(tree, statement.lineno)
    around = class_around(tree, scope)
    metric = around is not None and _METRICS.search(around.name) is not None
    by_mode = any(isinstance(item, ast.Attribute) and item.attr == "training" for item in own_nodes(scope))
    return not metric and not by_mode and _is_returned(tree, statement)


def _is_returned(tree: ast.Module, statement: ast.stmt) -> bool:
    """Whether what a statement makes takes part in what its function returns; not where that is one of several."""
    if isinstance(statement, ast.Return):
        return not isinstance(statement.value, (ast.Tuple, ast.Dict))
    first = set(bound_names(statement.targets[0])) if isinstance(statement, ast.Assign) else set[str]()
    reached = {*first}
    for item in sorted(own_nodes(scope_of(tree, statement.lineno)), key=lambda item: getattr(item, "lineno", 0)):
        if isinstance(item, ast.Assign) and reached & set(names_in(item.value)):
            reached |= {name for target in item.targets for name in bound_names(target)}
        if isinstance(item, ast.Return) and item.value is not None and reached & set(names_in(item.value)):
            return not _is_part(item.value, first)
    return False


def _is_part(value: ast.expr, names: set[str]) -> bool:
    """Whether one of the names is returned as it is, beside others: a metric may read it, and the loss the others."""
    parts = value.elts if isinstance(value, ast.Tuple) else value.values if isinstance(value, ast.Dict) else []
    return any(isinstance(item, ast.Name) and item.id in names for item in parts)
