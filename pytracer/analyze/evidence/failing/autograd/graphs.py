"""Autograd's complaints: what cut the graph, what kept it from step to step, what changed a tensor in place."""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.failing.autograd.in_place import changed_in_place
from pytracer.analyze.evidence.failing.autograd.kept_results import carried_by_object
from pytracer.analyze.evidence.failing.autograd.shared_graphs import shared_graph
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS, Loop, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes

_NO_GRAPH = "does not require grad and does not have a grad_fn"
_TWICE = "backward through the graph a second time"
_IN_PLACE = "modified by an inplace operation"
CUTS = re.compile(
    r"requires_grad_?\s*(?:=|\()\s*\(?False|no_grad\b|inference_mode|\.detach\(|\.item\(|\.numpy\(|torch\.tensor\(|\.data\b|argmax\("
)
_UNUSED = "appears to not have been used in the graph"
_HOOK = re.compile(r"hook '([\w.]+)' has changed the (?:size|type) of value")
_FREEZES = re.compile(r"requires_grad_?\s*(?:=|\()\s*\(?False")
_NONE_TRAINED = re.compile(r"0 of ([1-9]\d*) require a gradient$")
_SWITCH = re.compile(r"set_grad_enabled\(|(?:no_grad|inference_mode)\(.*__enter__\(")
# What has no graph: data, and tensors that are filled.
_LEAF = re.compile(
    r"torch\.(?:\w*rand\w*|zeros|ones|tensor|full|empty|arange|linspace|load|from_numpy)\(|next\(|\.to\(|\bin\b"
)
_WHOLE = re.compile(r"^(?:u?int\d+|bool)$")
_ENTERED = re.compile(r"no_grad|inference_mode|set_grad_enabled")
_MOST = 2
_HOPS = 6


def autograd_line(at: FailingLine) -> str | None:
    """By torch's message, from the statements of the program."""
    if _NO_GRAPH in at.message:
        return _cut(at)
    if _TWICE in at.message:
        kept = carried_by_object(at)
        return shared_graph(at) or _carried(at) or (kept[0] if kept is not None else None)
    if _IN_PLACE in at.message:
        return changed_in_place(at)
    if _UNUSED in at.message:
        return _independent(at)
    hook = _HOOK.search(at.message)
    return _returned(at, hook[1]) if hook is not None else None


def carried_subject(at: FailingLine) -> str | None:
    """What the headline says of a graph that an object keeps."""
    if _TWICE not in at.message or shared_graph(at) is not None:
        return None
    kept = carried_by_object(at) if _carried(at) is None else None
    return kept[1] if kept is not None else None


def _independent(at: FailingLine) -> str | None:
    """torch.autograd.grad() of a result by what it does not depend on."""
    call = at.only(ast.Call)
    if call is None or called_name(call) != "grad" or len(call.args) < _MOST:
        return None
    result, by = call.args[0], call.args[1]
    way = _lines_of_functions(at, [result])
    name = variable(result)
    way |= lines_on_the_way(at, name) if name is not None else set()
    found = {
        item.lineno: f"line {item.lineno} (`{head_of(item) if isinstance(item, ast.With) else source(item)}`)"
        for item in plain_statements(at.tree)
        if CUTS.search(head_of(item)) and not _FREEZES.search(head_of(item)) and item.lineno in way
    }
    if len(found) != 1:
        return None
    return (
        f"`{source(result)}` does not depend on `{source(by)}`{at.came(variable(by) or '')} in the graph: on the way "
        f"{next(iter(found.values()))} can cut it. Take that away, or pass allow_unused=True if it shall not depend."
    )


def _returned(at: FailingLine, name: str) -> str | None:
    """What a hook of the program returns in place of a gradient."""
    plain = name.rpartition(".")[2]
    own = function_named(at.tree, plain)
    returns = (
        [item for item in own_nodes(own) if isinstance(item, ast.Return) and item.value] if own is not None else []
    )
    if own is None or len(returns) != 1 or returns[0].value is None:
        return None
    value = returns[0].value
    bound = bound_value(own, variable(value) or "", returns[0].lineno)
    made = f" (line {bound[0]}: `{source(bound[1])}`)" if bound is not None and bound[1] is not None else ""
    return (
        f"{plain}() (line {own.lineno}) returns `{source(value)}`{made} at line {returns[0].lineno}, and what a hook "
        "returns replaces the gradient, which must keep its shape and type. Return nothing from a hook that only "
        "looks, or a tensor like the gradient that it is given."
    )


def plain_statements(tree: ast.Module) -> list[ast.stmt]:
    """Those without a body of their own, and `with`."""
    return [item for item in ast.walk(tree) if isinstance(item, ast.stmt) and not hasattr(item, "body")] + [
        item for item in ast.walk(tree) if isinstance(item, (ast.With, ast.AsyncWith))
    ]


def _cut(at: FailingLine) -> str | None:
    if at.values.get("torch.is_grad_enabled()") == "False":
        return switched_off(at)
    loss = next(iter(names_in(at.node)), "the loss") if at.node is not None else "the loss"
    return _frozen(at, loss) or _graph_lost(at, loss) or _reentrant(at, loss) or _cutting_lines(at, loss)


def _reentrant(at: FailingLine, loss: str) -> str | None:
    """A checkpoint that gives no graph where none of its inputs requires a gradient, though its parameters do."""
    calls = {
        at.in_file(file, item.lineno): item
        for file, tree in at.files.items()
        for item in ast.walk(tree)
        if isinstance(item, ast.Call) and called_name(item) in ("checkpoint", "checkpoint_sequential")
    }
    freezes = [item for item in plain_statements(at.tree) if _FREEZES.search(head_of(item))]
    if len(calls) != 1 or not freezes:
        return None
    where, call = next(iter(calls.items()))
    told = keyword_value(call, "use_reentrant")
    if isinstance(told, ast.Constant) and not told.value:
        return None
    by = f"line {freezes[0].lineno} (`{source(freezes[0])}`)"
    return (
        f"{source(call.func)}() at {where} may cut `{loss}` from its graph: with use_reentrant=True"
        f"{'' if told is not None else ', the default,'} it makes none where none of its inputs requires a gradient, "
        f"and {by} freezes what makes them. "
        "Pass use_reentrant=False there, or let its input require a gradient (enable_input_require_grads())."
    )


def _frozen(at: FailingLine, loss: str) -> str | None:
    """Every parameter of a module of the frame."""
    none = {name: found[1] for name, value in at.values.items()
            if (found := _NONE_TRAINED.match(value)) is not None and name.startswith("parameters of ")}  # fmt: skip
    some = any(value.endswith("require a gradient") and not _NONE_TRAINED.match(value) for value in at.values.values())
    if len(none) != 1 or some:
        return None
    name = next(iter(none)).removeprefix("parameters of ")
    lines = {item.lineno: source(item) for item in plain_statements(at.tree) if _FREEZES.search(head_of(item))}
    by = " or ".join(f"line {number} (`{lines[number]}`)" for number in sorted(lines)) if len(lines) <= _MOST else ""
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
        item for item in ast.walk(at.tree) if isinstance(item, ast.For) and item.lineno < line <= (item.end_lineno or 0)
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
    off = next((item for item in by if _ENTERED.search(ast.unparse(item))), None)
    if off is not None and isinstance(found.spot.scope, ast.FunctionDef):
        name = found.spot.scope.name
        return f"{words}: line {off.lineno} (`@{source(off)}` of {name}()) keeps it from one. Take it away."
    if not around and any(_is_below_switch(at, depth) for depth in range(1, len(at.frames))):
        return None
    if around:
        return (
            f"{words}: line {around[-1].lineno} (`{head_of(around[-1])}`) cuts the graph. Compute it outside of that."
        )
    return (
        f"{words}: something at that line cuts the graph. Compute it by torch's differentiable operations alone there "
        "(no argmax, .item(), .detach(), torch.tensor(), numpy, comparison or no_grad())."
    )


def _cutting_lines(at: FailingLine, loss: str) -> str | None:
    """The statements on the way to the loss that can cut it, where they are few."""
    way = lines_on_the_way(at, loss)
    found = {
        item.lineno: f"line {item.lineno} (`{source(item) if not isinstance(item, ast.With) else head_of(item)}`)"
        for item in plain_statements(at.tree)
        if _FREEZES.search(head_of(item)) or (CUTS.search(head_of(item)) and item.lineno in way)
    }
    for item in ast.walk(at.tree):
        for by in item.decorator_list if isinstance(item, ast.FunctionDef) and item.lineno in way else ():
            if CUTS.search(ast.unparse(by)):
                found[by.lineno] = f"line {by.lineno} (`@{source(by)}` of {item.name}())"  # type: ignore[attr-defined]
    lines = [found[number] for number in sorted(found)]
    if not lines or len(lines) > _MOST:
        return None
    return (
        f"`{loss}`{at.came(loss)} has no graph, which {' or '.join(lines)} on the way to it can cut. Keep it out of "
        "the way from the parameters to the loss, or leave some parameters trainable."
    )


def head_of(item: ast.stmt) -> str:
    """Its text; of a `with` what it enters."""
    return ", ".join(map(ast.unparse, item.items)) if isinstance(item, (ast.With, ast.AsyncWith)) else ast.unparse(item)


def lines_on_the_way(at: FailingLine, loss: str) -> set[int]:
    """Lines of the statements that a value is computed by: of its function, and of those that these call."""
    reached, lines = {loss}, set[int]()
    own = [item for item in own_nodes(at.scope) if isinstance(item, ast.stmt)]
    read: list[ast.AST] = [at.node] if at.node is not None else []
    for _ in range(_HOPS):
        for item in own:
            bound = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            named = {name for target in bound if target is not None for name in _targets(target)}
            if named & reached and item.lineno not in lines and not isinstance(item, (ast.For, ast.AsyncFor)):
                reached |= set(names_in(item))
                lines.add(item.lineno)
                read.append(item)
    for item in own:
        if isinstance(item, (ast.With, ast.AsyncWith)) and any(
            item.lineno < line <= (item.end_lineno or 0) for line in lines
        ):
            lines.add(item.lineno)
    return lines | _lines_of_functions(at, read)


def _lines_of_functions(at: FailingLine, read: list[ast.AST]) -> set[int]:
    """Of the program's functions that some code calls, and of every forward()."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [item for item in ast.walk(at.tree) if isinstance(item, kinds)]
    waiting, seen = [*read, *(item for item in functions if item.name in ("forward", "__call__"))], set[int]()
    lines = set[int]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, kinds):
            lines |= {*range(item.lineno, (item.end_lineno or item.lineno) + 1)}
        called = {called_name(part) for part in ast.walk(item) if isinstance(part, ast.Call)}
        for function in functions:
            if function.name in called and id(function) not in seen:
                seen.add(id(function))
                waiting.append(function)
    return lines


def switched_off(at: FailingLine) -> str | None:
    """The line that switched gradients off, and the way on which nothing switches them on."""
    if any(_is_below_switch(at, depth) for depth in range(len(at.frames))):
        return None
    calls = [
        (scope, item)
        for scope in (at.tree, *(part for part in ast.walk(at.tree) if isinstance(part, ast.FunctionDef)))
        for item in own_nodes(scope)
        if isinstance(item, ast.Expr) and _SWITCH.search(ast.unparse(item))
    ]
    off = [(scope, item) for scope, item in calls if not _is_on(item)]
    now = "Gradients are switched off (torch.is_grad_enabled() is False), so that no operation records a graph"
    how = "use `with torch.no_grad():` or @torch.no_grad(), which end on every way out"
    if len(off) != 1:
        return None
    scope, item = off[0]
    where = f"line {item.lineno} (`{source(item)}`) does that"
    name = f"{scope.name}()" if isinstance(scope, ast.FunctionDef) else "the program"
    on = [part.lineno for part in own_nodes(scope) if isinstance(part, ast.Expr) and _is_on(part)]
    on = [line for line in on if line > item.lineno]
    leaves = [
        part.lineno
        for part in own_nodes(scope)
        if isinstance(part, (ast.Return, ast.Raise)) and item.lineno < part.lineno < (on[0] if on else 0)
    ]
    if leaves:
        return f"{now}: {where}, and {name} leaves at line {leaves[0]}, before line {on[0]} undoes it. There, {how}."
    if on:
        return f"{now}: {where}, and line {on[0]}, which undoes it, was not reached: {how}."
    return f"{now}: {where}, and no line of {name} undoes it: {how}."


def _is_below_switch(at: FailingLine, depth: int) -> bool:
    """Whether a frame's line is below a `with torch.no_grad()`, or in a function decorated so."""
    spot = at.slice.spot(depth)
    scope = spot.scope if spot is not None else None
    if spot is None or scope is None:
        return False
    by = scope.decorator_list if isinstance(scope, ast.FunctionDef) else []
    return any(_ENTERED.search(ast.unparse(item)) for item in by) or any(
        isinstance(item, ast.With) and item.lineno <= spot.line <= (item.end_lineno or 0)
        and _ENTERED.search(head_of(item))
        for item in own_nodes(scope)
    )  # fmt: skip


def _is_on(item: ast.Expr) -> bool:
    return re.search(r"set_grad_enabled\((?:mode=)?True\)|__exit__", ast.unparse(item)) is not None


def _carried(at: FailingLine) -> str | None:
    """A variable that an iteration takes over from the one before."""
    loops = loops_around(at.tree, at.line, PLAIN_LOOPS)
    if not loops:
        return None
    carried: dict[str, int] = {}
    assigned = {name for item in loops if isinstance(item, ast.For) for name in _targets(item.target)}
    reached = _reached(loops[0], names_in(at.node) if at.node is not None else [])
    for item in _in_order(loops[0]):
        if isinstance(item, ast.Assign):
            read = set(names_in(item.value))
            targets = {name for target in item.targets for name in _targets(target)}
            for name in (read & targets) - assigned:
                if "detach" not in ast.unparse(item.value):
                    carried.setdefault(name, item.lineno)
            assigned |= targets
        elif isinstance(item, ast.AugAssign):
            name = variable(item.target) or ""
            if name and name not in assigned and not re.search(r"item\(\)|detach", ast.unparse(item.value)):
                carried.setdefault(name, item.lineno)
    tensors = {
        name: line
        for name, line in carried.items()
        if name in reached and not _without_graph(loops[0], line)
        if (shape := at.shape(name)) is not None or at.value(name) is None
        if shape is None or not _WHOLE.match(shape.dtype)
    }
    if len(tensors) == 1:
        name, line = next(iter(tensors.items()))
        return (
            f"`{name}` (line {line}) carries the graph of one step into the next, which backward() has freed: write "
            f"`{name} = {name}.detach()` at the start of each step (of a tuple, each of its tensors)."
        )
    return _before_loop(at, loops[0])


def _without_graph(loop: Loop, line: int) -> bool:
    """Whether a line is below a `with torch.no_grad()` of the loop."""
    return any(
        isinstance(item, ast.With) and item.lineno < line <= (item.end_lineno or 0) and CUTS.search(head_of(item))
        for item in ast.walk(loop)
    )


def _is_leaf(at: FailingLine, name: str) -> bool:
    """Whether it was made from no other tensor, or is not known to have been."""
    found = at.came_from(name)
    return found is None or _LEAF.search(found.text) is not None


def _before_loop(at: FailingLine, loop: Loop) -> str | None:
    """What was computed once, before the loop."""
    inside = {
        name
        for item in _in_order(loop)
        if isinstance(item, ast.Assign)
        for target in item.targets
        for name in _targets(target)
    }
    named = names_in(at.node) if at.node is not None else []
    shapes = [name for name in _reached(loop, named) if name not in inside and at.shape(name) is not None]
    shapes = [name for name in shapes if name in named or not _is_leaf(at, name)]
    if len(shapes) != 1:
        return None
    return (
        f"`{shapes[0]}`{at.came(shapes[0])} was computed once, before the loop at line {loop.lineno}, and backward() "
        "frees its graph in the first round: compute it in each round."
    )


def _reached(loop: Loop, names: list[str]) -> list[str]:
    """Those names, and what the loop computes them from."""
    made = [item for item in _in_order(loop) if isinstance(item, (ast.Assign, ast.AugAssign))]
    found = dict.fromkeys(names)
    for item in [*reversed(made), *reversed(made)]:  # also what a round takes over from the one before
        targets = item.targets if isinstance(item, ast.Assign) else [item.target]
        if any(name in found for target in targets for name in _targets(target)):
            found |= dict.fromkeys(names_in(item.value))
    return [*found]


def _in_order(loop: ast.stmt) -> list[ast.stmt]:
    return sorted((item for item in ast.walk(loop) if isinstance(item, ast.stmt)), key=lambda item: item.lineno)


def _targets(target: ast.AST) -> list[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for item in target.elts for name in _targets(item)]
    name = variable(target)
    return [name] if name is not None else []
