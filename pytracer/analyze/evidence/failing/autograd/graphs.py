"""Autograd's complaints: what cut the graph, what kept it from step to step, what changed a tensor in place."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.backward_call import TWICE, outside_backward
from pytracer.analyze.evidence.failing.autograd.backward_loops import looped_losses, stepped_in_loop
from pytracer.analyze.evidence.failing.autograd.cached_graphs import cached_graph
from pytracer.analyze.evidence.failing.autograd.carried_graphs import carried_graph
from pytracer.analyze.evidence.failing.autograd.carried_states import carried_by_object
from pytracer.analyze.evidence.failing.autograd.cut_graphs import cut_graph
from pytracer.analyze.evidence.failing.autograd.graph_lines import (
    CUTS,
    FREEZES,
    head_of,
    lines_of_functions,
    lines_on_the_way,
    plain_statements,
)
from pytracer.analyze.evidence.failing.autograd.in_place import IN_PLACE, changed_in_place
from pytracer.analyze.evidence.failing.autograd.kept_lists import kept_list
from pytracer.analyze.evidence.failing.autograd.made_once import made_once
from pytracer.analyze.evidence.failing.autograd.prepared_graphs import prepared_graph
from pytracer.analyze.evidence.failing.autograd.shared_graphs import shared_graph
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes

_NO_GRAPH = "does not require grad and does not have a grad_fn"
_UNUSED = "appears to not have been used in the graph"
_HOOK = Pattern(r"hook '([\w.]+)' has changed the (?:size|type) of value")
_BOTH = 2  # a result, and by what


def autograd_line(at: FailingLine) -> str | None:
    """By torch's message, from the statements of the program."""
    if _NO_GRAPH in at.message:
        return cut_graph(at)
    if TWICE in at.message:
        outer = outside_backward(at)
        found = shared_graph(outer) or carried_graph(outer)
        if found is None:
            at.named.clear()  # of what does not hold
        return found or _of_object_or_data(at)[0]
    if IN_PLACE in at.message:
        return stepped_in_loop(at) or changed_in_place(at)
    if _UNUSED in at.message:
        return _independent(at)
    hook = _HOOK.search(at.message)
    return _returned(at, hook[1]) if hook is not None else None


def carried_subject(at: FailingLine) -> str | None:
    """What the headline says of a graph that an object keeps, or that data have which were computed before."""
    if TWICE not in at.message:
        return None
    outer = outside_backward(at)
    if shared_graph(outer) is not None or carried_graph(outer) is not None:
        return None
    return _of_object_or_data(at)[1]


def _of_object_or_data(at: FailingLine) -> tuple[str | None, str | None]:
    """What to do, and for the headline, of a graph that an object keeps; else of data that have one."""
    kept = carried_by_object(at)
    if kept is not None:
        return kept
    for known in (made_once, cached_graph, looped_losses, kept_list):
        found = known(at)
        if found[0] is not None:
            return found
    prepared = prepared_graph(outside_backward(at))
    return (prepared.advice, prepared.subject) if prepared is not None else (None, None)


def _independent(at: FailingLine) -> str | None:
    """torch.autograd.grad() of a result by what it does not depend on."""
    call = at.only(ast.Call)
    if call is None or called_name(call) != "grad" or len(call.args) < _BOTH:
        return None
    result, by = call.args[0], call.args[1]
    way = lines_of_functions(at.tree, [result])
    name = variable(result)
    way |= lines_on_the_way(at, name) if name is not None else set()
    found = {
        item.lineno: f"{at.here(item.lineno)} (`{head_of(item) if isinstance(item, ast.With) else source(item)}`)"
        for item in plain_statements(at.tree)
        if CUTS.search(head_of(item)) and not FREEZES.search(head_of(item)) and item.lineno in way
    }
    if len(found) != 1:
        return None
    return (
        f"`{source(result)}` does not depend on `{source(by)}`{at.came(by)} in the graph: on the way "
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
    made = f" ({at.here(bound[0])}: `{source(bound[1])}`)" if bound is not None and bound[1] is not None else ""
    return (
        f"{plain}() ({at.here(own.lineno)}) returns `{source(value)}`{made} at "
        f"{at.here(returns[0].lineno)}, and what a hook "
        "returns replaces the gradient, which must keep its shape and type. Return nothing from a hook that only "
        "looks, or a tensor like the gradient that it is given."
    )
