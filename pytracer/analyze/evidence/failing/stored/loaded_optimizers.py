"""Loaded state of an optimizer that has other shapes than the gradients: load_state_dict() does not compare them."""

from __future__ import annotations

import ast
import re
from itertools import chain

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.optimizer_loads import OptimizerLoad, optimizer_load
from pytracer.analyze.evidence.failing.stored.registered_orders import registered_order, registered_words
from pytracer.analyze.evidence.failing.stored.set_orders import lists_for_sets, set_lines
from pytracer.analyze.evidence.operators.state_orders import are_misplaced
from pytracer.analyze.evidence.slicing.parameter_lists import parameter_lists
from pytracer.analyze.evidence.slicing.parameter_sets import ParameterSet, parameter_sets
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_MISFIT = Pattern(r"^The size of tensor a \(\d+\) must match the size of tensor b|doesn't match the broadcast shape")
_UNFIT = Pattern(
    r"^(?P<state>\w+ \[[\d, ]*\]) of (?P<name>\S+|a parameter) (?P<shape>\[[\d, ]*\]), (?P<count>\d+ of \d+)$", re.ASCII
)
_OPTIM, _SCALER = "/torch/optim/", "/grad_scaler.py"
_FSDP1 = ("FullyShardedDataParallel", "FSDP")


class _Misfit(msgspec.Struct, frozen=True):
    """`sets`: those that its groups are built from; `known`: whether all that does not fit is another parameter's."""

    stepped: str
    made: Made
    load: OptimizerLoad
    sets: tuple[ParameterSet, ...]
    known: bool | None


def misfit_state(at: FailingLine) -> str | None:
    """Where the program loads a state for the object whose step() failed."""
    found = _misfit(at)
    if found is None:
        return None
    place, unfit = at.place(found.load.spot, found.load.call.lineno), _unfit(at)
    if found.sets:
        return (
            f"{lists_for_sets(at, found.sets)} State is loaded by position ({place}), so what was saved in the order "
            "of a set cannot be matched: begin with a new state for that checkpoint."
        )
    begin = (
        f"`{found.stepped}` has a state of other shapes than its gradients: {place} loads one"
        f"{', if it ran' if found.load.maybe else ''}"
    )
    wrapped = _wrapped(found.made)
    if wrapped is None:
        lists = parameter_lists(at.files, at.slice, found.stepped)
        if lists is not None:
            return (
                f"{begin}, and load_state_dict() compares no shapes. Load there what was saved with the same order of "
                f"parameters, or begin with a new state. {lists.words(at.place)}"
            )
        if unfit is not None or found.known:
            return _by_position(at, found, unfit, f"{place}{', if it ran,' if found.load.maybe else ''}")
        return (
            f"{begin}, and load_state_dict() compares no shapes. Load there what was saved for a model of the same "
            f"layers and sizes, in the same order; or leave {place} out, and begin with a new state."
        )
    model, line = wrapped
    return (
        f"{begin}, and FSDP ({at.place(found.made.spot, line)}) makes flat parts of them. Load "
        f"`FSDP.optim_state_dict_to_load({model}, {found.load.name}, state)` there, on all ranks; where a plain "
        f"optimizer saved it, first call `FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_NAME, {model})` "
        "before FSDP()."
    )


def misfit_subject(at: FailingLine) -> str | None:
    """What the headline says of it; less surely where the states are not known."""
    found = _misfit(at)
    if found is None:
        return None
    if found.sets:
        return _of_sets(at, found)
    unfit = _unfit(at)
    unsure = found.load.maybe or any(_replaces_memory(item) for tree in at.files.values() for item in nodes_of(tree))
    if _wrapped(found.made) is not None or (not found.known and (unfit is None or unsure)):
        return None
    fits = "is that of other parameters" if found.known else "does not fit"
    meets = f": {unfit['state']} meets {_of(unfit)}" if unfit is not None else ""
    listed = parameter_lists(at.files, at.slice, found.stepped) is not None
    order = registered_order(at) if found.known and not listed else None
    why = f"; {registered_words(at, order)[0]}" if order is not None else ""
    place = at.place(found.load.spot, found.load.call.lineno)
    return f"the state that {place} loads into `{found.stepped}` {fits}{meets}{why}"


def _of_sets(at: FailingLine, found: _Misfit) -> str:
    """Of groups that are built from sets."""
    shapes, so = ("shapes of other parameters", "since") if found.known else ("other shapes than the gradients", "and")
    of = f"{'sets' if len(found.sets) > 1 else 'a set'} ({set_lines(at, found.sets)})"
    order = "changes" if found.known else "may change"
    return f"the loaded state has {shapes}, {so} the groups are built from {of}, whose order {order}"


def _by_position(at: FailingLine, found: _Misfit, unfit: re.Match[str] | None, place: str) -> str:
    """What is recorded of the states, or of one: none of it is about the data or the loss."""
    matched = f"{capital(place)} gives `{found.stepped}` saved states by position, not by name, and compares no shapes"
    counted = f": {unfit['count']} do not fit" if unfit is not None else ""
    order = registered_order(at) if found.known else None
    if order is not None:
        return f"{matched}{counted}. {registered_words(at, order)[1]} For this checkpoint, begin with a new state."
    if found.known:
        return (
            f"{matched}{counted}, each of the size of another parameter. Register the layers, and list the parameters, "
            "in the order in which they were saved (no set, no sorted dict); or begin with a new state."
        )
    return (
        f"{matched}{counted}. Load there what was saved for a model of the same layers and sizes, registered in the "
        f"same order; or leave {place.partition(',')[0]} out, and begin with a new state."
    )


def _unfit(at: FailingLine) -> re.Match[str] | None:
    """The first state of another shape than its parameter, as it was recorded."""
    return _UNFIT.match(at.values.get("unfit state", ""))


def _of(unfit: re.Match[str]) -> str:
    name = unfit["name"]
    return f"{name if ' ' in name else f'`{name}`'} {unfit['shape']}"


def _replaces_memory(item: ast.AST) -> bool:
    """`weight.data = weight.data[:8]`, after which a state that fitted does not."""
    return isinstance(item, ast.Assign) and any(
        isinstance(target, ast.Attribute) and target.attr == "data" for target in item.targets
    )


def loaded_state(at: FailingLine) -> tuple[str, Made, OptimizerLoad] | None:
    """Of a step() that failed in torch: its optimizer, the call that made it, and the only one that loads its state."""
    above = at.stack[: at.stack.index(at.frame)]
    if not any(_OPTIM in (item.file or "") for item in above):
        return None
    if not all("/torch/" in (item.file or "") for item in above):
        return None
    stepped = _stepped(at)
    made = at.made(stepped) if stepped is not None else None
    if stepped is None or made is None or not isinstance(made.node, ast.Call):
        return None
    load = optimizer_load(at, made)
    return (stepped, made, load) if load is not None else None


def _misfit(at: FailingLine) -> _Misfit | None:
    above = at.stack[: at.stack.index(at.frame)]
    if _MISFIT.search(at.message) is None or not above or _OPTIM not in (above[0].file or ""):
        return None
    loaded = loaded_state(at)
    if loaded is None:
        return None
    stepped, made, load = loaded
    call = made.node if isinstance(made.node, ast.Call) else None
    known = are_misplaced(chain.from_iterable(at.snapshot.named.values()))
    if call is None or known is False or _wrapped(made) is not None:
        return _Misfit(stepped, made, load, (), known)
    return _Misfit(stepped, made, load, (*parameter_sets(at.slice, call, made.spot),), known)


def _stepped(at: FailingLine) -> str | None:
    """`optimizer` of `optimizer.step()`, and of `scaler.step(optimizer)`."""
    call = at.only(ast.Call)
    if call is None or called_name(call) != "step" or not isinstance(call.func, ast.Attribute):
        return None
    by_scaler = any((item.file or "").endswith(_SCALER) for item in at.stack)
    node = call.args[0] if by_scaler and call.args else call.func.value
    return variable(node)


def _wrapped(made: Made) -> tuple[str, int] | None:
    """The module whose parameters it has, and the line that made FSDP of it."""
    owners = {source(item.value) for item in nodes_of(made.node) if isinstance(item, ast.Attribute)}
    for item in own_nodes(made.spot.scope):
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and called_name(item.value) in _FSDP1:
            model = source(item.targets[0])
            if model in owners and item.lineno < made.line:
                return model, item.lineno
    return None
