"""Loaded state of an optimizer that has other shapes than the gradients: load_state_dict() does not compare them."""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.parameter_lists import parameter_lists
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, spans

_MISFIT = re.compile(r"^The size of tensor a \(\d+\) must match the size of tensor b|doesn't match the broadcast shape")
_OPTIM, _SCALER = "/torch/optim/", "/grad_scaler.py"
_FSDP1 = ("FullyShardedDataParallel", "FSDP")


def misfit_state(at: FailingLine) -> str | None:
    """Where the program loads a state for the object whose step() failed."""
    above = at.stack[: at.stack.index(at.frame)]
    if _MISFIT.search(at.message) is None or not above or _OPTIM not in (above[0].file or ""):
        return None
    if not all("/torch/" in (item.file or "") for item in above):
        return None
    stepped = _stepped(at)
    made = at.made(stepped) if stepped is not None else None
    if stepped is None or made is None or not isinstance(made.node, ast.Call):
        return None
    name = _name_of(made.spot, made.node)
    load = _load(made.spot, name, made.line) if name is not None else None
    load = load or (_load_of_class(made.spot, name) if name is not None else None)
    if name is None or load is None or not load.args:
        return None
    place = at.place(made.spot, load.lineno)
    maybe = any(isinstance(item, ast.If) and spans(item, load.lineno) for item in own_nodes(made.spot.scope))
    begin = (
        f"`{stepped}` has a state of other shapes than its gradients: {place} loads one{', if it ran' if maybe else ''}"
    )
    wrapped = _wrapped(made.spot, made.node)
    if wrapped is None:
        lists = parameter_lists(at.files, at.slice, stepped)
        if lists is not None:
            return (
                f"{begin}, and load_state_dict() compares no shapes. Load there what was saved with the same order of "
                f"parameters, or begin with a new state. {lists.words(at.place)}"
            )
        return (
            f"{begin}, and load_state_dict() compares no shapes. Load there what was saved for a model of the same "
            f"layers and sizes, in the same order; or leave {place} out, and begin with a new state."
        )
    model, line = wrapped
    return (
        f"{begin}, and FSDP ({at.place(made.spot, line)}) makes flat parts of them. Load "
        f"`FSDP.optim_state_dict_to_load({model}, {name}, state)` there, on all ranks; where a plain optimizer saved "
        f"it, first call `FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_NAME, {model})` before FSDP()."
    )


def _stepped(at: FailingLine) -> str | None:
    """`optimizer` of `optimizer.step()`, and of `scaler.step(optimizer)`."""
    call = at.only(ast.Call)
    if call is None or called_name(call) != "step" or not isinstance(call.func, ast.Attribute):
        return None
    by_scaler = any((item.file or "").endswith(_SCALER) for item in at.stack)
    node = call.args[0] if by_scaler and call.args else call.func.value
    return variable(node)


def _name_of(spot: Spot, made: ast.Call) -> str | None:
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Assign) and item.value is made and len(item.targets) == 1:
            return variable(item.targets[0])
    return None


def _load(spot: Spot, name: str, line: int) -> ast.Call | None:
    """The only one of that object, below the line that made it."""
    found = [
        item
        for item in own_nodes(spot.scope)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "load_state_dict"
        if variable(item.func.value) == name and item.lineno > line
    ]
    return found[0] if len(found) == 1 else None


def _load_of_class(spot: Spot, name: str) -> ast.Call | None:
    """The only one of an attribute, in whichever method of its class."""
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    found = [
        item
        for item in (nodes_of(owner) if owner is not None else ())
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "load_state_dict"
        if variable(item.func.value) == name
    ]
    return found[0] if len(found) == 1 else None


def _wrapped(spot: Spot, made: ast.Call) -> tuple[str, int] | None:
    """The module whose parameters it has, and the line that made FSDP of it."""
    owners = {source(item.value) for item in nodes_of(made) if isinstance(item, ast.Attribute)}
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and called_name(item.value) in _FSDP1:
            model = source(item.targets[0])
            if model in owners and item.lineno < made.lineno:
                return model, item.lineno
    return None
