"""What ranks are given wrongly: lists of objects, meshes, models."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.by_content import content_source
from pytracer.analyze.evidence.slicing.by_rank import size_source
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import rank_branch

_NONE = Pattern(r"'NoneType' has no len\(\)")
_MOVES = frozenset({"to", "cuda", "cpu", "train", "eval", "half", "float", "bfloat16"})
_MESH = Pattern(r"Mesh should not be bigger than default world size (\d+), but found (\d+) ranks")
_OTHER_MODEL = Pattern(
    r"appears not to match (?:sizes|strides) of the same param in process 0|DDP expects same model across all ranks"
)
_DDP = ("DistributedDataParallel", "DDP")
_LISTS = ("broadcast_object_list",)


def no_object_list(at: FailingLine) -> str | None:
    """broadcast_object_list(None): each rank brings a list, and that of the receivers is filled."""
    call = at.only(ast.Call)
    if _NONE.search(at.message) is None or call is None or called_name(call) not in _LISTS or not call.args:
        return None
    name = variable(call.args[0])
    if name is None or at.value(name) != "None":
        return None
    bound = [(line, value) for line, value, _ in bindings_of(at.scope, name) if line < at.line]
    empty = [line for line, value in bound if is_none(value)]
    filled = [line for line, value in bound if line not in empty and rank_branch(at.tree, line) is not None]
    where = f" (line {empty[-1]})" if empty else ""
    only = f", and only another rank makes a list (line {filled[-1]})" if filled else ""
    return (
        f"`{name}` is None on this rank{where}{only}: {called_name(call)}() fills the list that each rank passes. "
        f"Begin with a list of as many places as the sender has objects, `{name} = [None]`, and fill it on the sender."
    )


def mesh_too_large(at: FailingLine) -> str | None:
    """A mesh of more ranks than were started."""
    found, call = _MESH.search(at.message), at.only(ast.Call)
    if found is None:
        return None
    shape = next(iter(call.args[1:2]), None) if call is not None else None
    named = f"`{source(shape)}`{at.came(shape)}" if shape is not None else f"The mesh of line {at.line}"
    return (
        f"{named} needs {found[2]} ranks, and {found[1]} were started: the product of its sizes must be the number of "
        f"ranks. Start {found[2]} processes (torchrun --nproc-per-node), or compute one size from the others, "
        "`dist.get_world_size() // other`."
    )


def differing_model(at: FailingLine) -> str | None:
    """The line with the rank that the sizes of the model can come from."""
    cause = _cause_of_model(at)
    if cause is None:
        return None
    return (
        f"{cause}: each rank then has a model of its own. Compute it from all the data, or on rank 0, and broadcast it "
        "(broadcast_object_list) before the model is made."
    )


def _cause_of_model(at: FailingLine) -> str | None:
    on_line = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    call = next((item for item in on_line if called_name(item) in _DDP and item.args), None)
    if _OTHER_MODEL.search(at.message) is None or call is None:
        return None
    spot = at.slice.spot(0)
    made = at.slice.made(call.args[0], spot, calls=False) if spot is not None else None
    while made is not None and (moved := _moved(made.node)) is not None:
        made = at.slice.made(moved, made.spot, calls=False)
    given = made.node if made is not None and isinstance(made.node, ast.Call) else None
    if made is None or given is None:
        return None
    makes = f"`{short(source(given))}` ({at.place(made.spot, made.line)}) makes the model with"
    for item in passed_values(given):
        found = size_source(at.slice, item, made.spot)
        if found is not None:
            by = f"({at.place(found.spot, found.line)}: `{short(source(found.node))}`)"
            return f"{makes} `{source(item)}`, which may depend on the rank {by}"
    for item in passed_values(given):
        counted = content_source(at.slice, item, made.spot)
        if counted is not None:
            by = f"({at.place(counted.spot, counted.line)}: `{short(source(counted.call))}`)"
            made_by = counted.counted
            own = f"{at.place(made_by.spot, made_by.line)}: `{short(source(made_by.node))}`"
            return f"{makes} `{source(item)}` ({own}), of data that may depend on the rank {by}"
    return None


def _moved(node: ast.AST) -> ast.expr | None:
    """`model` of `model.to(rank)`."""
    called = node.func if isinstance(node, ast.Call) else None
    return called.value if isinstance(called, ast.Attribute) and called.attr in _MOVES else None


def model_subject(at: FailingLine) -> str | None:
    """For the headline."""
    cause = _cause_of_model(at)
    return f"the ranks built different models: {cause}" if cause is not None else None
