"""Loaded state of an optimizer that is plain tensors, where its parameters are sharded: load_state_dict() keeps it so.

torch.optim puts the tensors that it is given on the parameter's device, and makes no DTensor of them (torch 2.13,
optim/optimizer.py, _process_value_according_to_param_policy). The first step() after that meets both.
"""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.loaded_optimizers import loaded_state
from pytracer.analyze.evidence.failing.stored.optimizer_loads import OptimizerLoad
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import holds
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of

_MIXED = Pattern(r"got mixed torch\.Tensor and DTensor")
_OF_LISTS = Pattern(r"\b_(?:foreach|fused)_")  # an operator over many parameters
_SHARDS = frozenset({"parallelize_module", "distribute_module", "distribute_tensor"})
_LISTED = ("parameters", "named_parameters")


def plain_state(at: FailingLine) -> str | None:
    """How to load it in parts."""
    found = _plain(at)
    if found is None:
        return None
    stepped, load = found
    model = _model(at)
    line = f"{capital(at.place(load.spot, load.call.lineno))} (`{source(load.call)}`)"
    return (
        f"{line}{', if it ran,' if load.maybe else ''} gives `{stepped}` plain tensors, and its parameters are "
        "DTensors. Load it there, on all ranks, by torch.distributed.checkpoint.state_dict."
        f"set_optimizer_state_dict({model}, {load.name}, state, options=StateDictOptions(full_state_dict=True)): it "
        "wants the names of parameters, so what a plain optimizer saved by number needs its keys renamed first. Or "
        "make each moment of it `distribute_tensor(value, p.device_mesh, p.placements)` before."
    )


def plain_subject(at: FailingLine) -> str | None:
    """For the headline, where nothing decides whether the load runs."""
    found = _plain(at)
    if found is None or found[1].maybe:
        return None
    stepped, load = found
    place = at.place(load.spot, load.call.lineno)
    return f"the state that {place} loads into `{stepped}` is plain tensors, and its parameters are sharded (DTensor)"


def _plain(at: FailingLine) -> tuple[str, OptimizerLoad] | None:
    """Only where the program shards all that it trains: a step over DTensors and other parameters mixes these."""
    if _MIXED.search(at.message) is None:
        return None
    loaded = loaded_state(at)
    if loaded is None:
        return None
    stepped, made, load = loaded
    calls = [(tree, item) for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    units = [_is_part(tree, item, made) for tree, item in calls if called_name(item) == "fully_shard"]
    others = any(called_name(item) in _SHARDS for _, item in calls) and _OF_LISTS.search(at.message) is None
    return (stepped, load) if (not all(units) if units else others) else None


def _is_part(tree: ast.Module, call: ast.Call, made: Made) -> bool:
    """`fully_shard(model.head)`, `fully_shard(model[0])`, `for block in model.blocks: fully_shard(block)`.

    `self.model` is the whole where the optimizer has `self.model.parameters()`.
    """
    first = next(iter(passed_values(call)), None)
    owners = [item.value for item in nodes_of(made.node) if isinstance(item, ast.Attribute) and item.attr in _LISTED]
    if first is None or any(ast.unparse(item) == ast.unparse(first) for item in owners):
        return first is None
    if not isinstance(first, ast.Name):
        return not (isinstance(first, ast.Call) and isinstance(first.func, ast.Name))  # `fully_shard(Net())`
    name, scope = first.id, scope_of(tree, call.lineno)
    if any(isinstance(item, (ast.Attribute, ast.Subscript)) for _, item in lines_that_bind(scope, name)):
        return True
    loops = (item for item in own_nodes(scope) if isinstance(item, (ast.For, ast.AsyncFor, ast.comprehension)))
    return any(holds(item.target, name) for item in loops)


def _model(at: FailingLine) -> str:
    """The variable that is sharded as a whole, where there is one: a name without dots or indices."""
    names = {
        first.id
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == "fully_shard"
        for first in passed_values(item)[:1]
        if isinstance(first, ast.Name)
    }
    return "model" if len(names) != 1 or "model" in names else names.pop()
