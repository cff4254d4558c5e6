"""What a value with a graph does not allow: NumPy, and a parameter that is changed in place."""

from __future__ import annotations

import ast

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_NUMPY = "Can't call numpy() on Tensor that requires grad"
_LEAF = "a leaf Variable that requires grad"
_STEPS = frozenset({"cpu", "float", "double", "squeeze", "flatten", "view", "reshape", "contiguous", "numpy", "mean"})


def outside_of_graph(at: FailingLine) -> str | None:
    """By the messages of torch."""
    if _NUMPY in at.message:
        return _to_numpy(at)
    return _changed_leaf(at) if at.message.startswith(_LEAF) else None


def _to_numpy(at: FailingLine) -> str | None:
    """`preds.cpu().numpy()`."""
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    asked = [item for item in calls if called_name(item) == "numpy"]
    if len(asked) != 1:
        return None
    owner: ast.AST = asked[0]
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr in _STEPS:
        owner = owner.func.value
    name = variable(owner)
    if name is None:
        return None
    idle = _idle_switch(at)
    if idle is not None:
        return f"{idle}, so that `{name}`{at.came(name)} has no graph, which NumPy cannot keep."
    return (
        f"`{name}`{at.came(name)} has a graph, which NumPy cannot keep. Where it only goes into metrics, logs or plots "
        f"write `{name}.detach().cpu().numpy()`; what a loss is made of must stay in torch, as a detached "
        "value has no gradient."
    )


def _idle_switch(at: FailingLine) -> str | None:
    """`torch.no_grad()` as a statement before the line, or a line that called its function."""
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        call = _idle_call(at, spot) if spot is not None else None
        if spot is None or call is None:
            continue
        if any(isinstance(item, ast.Call) and called_name(item) == "backward" for item in own_nodes(spot.scope)):
            return None  # what follows is trained
        text = source(call)
        return (
            f"{capital(at.place(spot, call.lineno))} (`{text}`) alone has no effect: write `with {text}:` there, with "
            "what follows below it"
        )
    return None


def _idle_call(at: FailingLine, spot: Spot) -> ast.Call | None:
    """The first of a function that is a statement of its own, above the line."""
    for item in own_nodes(spot.scope):
        call = item.value if isinstance(item, ast.Expr) else None
        if not isinstance(call, ast.Call) or call.args or call.lineno >= spot.line:
            continue
        if called_name(call) in ("no_grad", "inference_mode") and _is_of_torch(at, call):
            return call
    return None


def _is_of_torch(at: FailingLine, call: ast.Call) -> bool:
    """Not a method or function of the program's own that has the name."""
    name = called_name(call)
    owned = any(
        isinstance(item, ast.FunctionDef) and item.name == name for tree in at.trees.values() for item in nodes_of(tree)
    )
    return not owned and not source(call.func).startswith("self.")


def _changed_leaf(at: FailingLine) -> str | None:
    """`p.clamp_(-c, c)`, `w -= lr * w.grad`, `w[0] = 1`."""
    statement = at.statement
    target: ast.AST | None = None
    call = at.only(ast.Call)
    if isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
        target = call.func.value
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    target = target.value if isinstance(target, ast.Subscript) else target
    if not isinstance(target, (ast.Name, ast.Attribute)) or statement is None:
        return None
    name = source(target)
    idle = _idle_switch(at)
    if idle is not None:
        return f"{idle}: `{name}` requires a gradient, and line {at.line} (`{source(statement)}`) changes it in place."
    return (
        f"`{name}`{at.came(name)} requires a gradient, and line {at.line} (`{source(statement)}`) changes it in place "
        f"while gradients are recorded. Put line {at.line} below `with torch.no_grad():`; or, where the change shall "
        "be part of the loss, make a new tensor of it."
    )
