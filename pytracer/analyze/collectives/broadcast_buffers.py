"""The broadcast of a module's buffers, which each forward of DistributedDataParallel begins with."""

from __future__ import annotations

import ast

from pytracer._text import list_words
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.library_calls import is_of_ddp
from pytracer.analyze.collectives.matching import Mismatch, Variant
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Module, ModuleTensor
from pytracer.decode.types.snapshot import Collective

_INDICES = "int32"  # of the broadcast of bucket indices


def buffers_words(job: JobView, found: Mismatch) -> str | None:
    """`` the buffers (`position_ids`) ``: what one side broadcasts in such a forward; None of any other call.

    All of the module's, of every dtype, the counts of batches of BatchNorm as well: each forward sends them all, in one
    call for each dtype. Of several modules that may be meant, none is named.
    """
    side = next((item for item in found.variants if _is_of_forward(item)), None)
    if side is None:
        return None
    modules = [fact.data for view in views_of(job, side.ranks) for fact in view.process.snapshot.recorded(Module)]
    buffers = {_names_of(item): item for item in modules if _names_of(item)}
    if modules and not buffers:
        return None
    meant = [names for names, item in buffers.items() if any(_may_be_in(side, part) for part in item.tensors)]
    return f"the buffers ({list_words([f'`{name}`' for name in meant[0]])})" if len(meant) == 1 else "the buffers"


def trains_at(view: ProcessView, call: Collective) -> bool:
    """Whether the function that calls the forward has a backward() behind it: it is a step of the training."""
    frame = place_of(call)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return False
    calls = (item for item in own_nodes(scope_of(tree, frame.line)) if isinstance(item, ast.Call))
    return any(called_name(item) == "backward" and item.lineno > frame.line for item in calls)


def _names_of(module: Module) -> tuple[str, ...]:
    """Their names."""
    return tuple(item.fqn for item in module.tensors if item.role == "buffer")


def _is_of_forward(side: Variant) -> bool:
    return side.call.op == "broadcast" and side.call.dtype != _INDICES and is_of_ddp(side.call)


def _may_be_in(side: Variant, item: ModuleTensor) -> bool:
    """Tensors of one dtype are sent in one."""
    return item.role == "buffer" and (item.dtype in (None, side.call.dtype) or side.call.dtype is None)
