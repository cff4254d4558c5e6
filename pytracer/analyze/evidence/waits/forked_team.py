"""Whether a forked child in the OpenMP runtime waits for threads that exist in its parent only, or is at work there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.evidence.waits.quiet import FEW, storage_epochs, timed_records
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.storages import CallSite, Storage
from pytracer.report.job import PythonFrame

_SHORT_NS = 2_000_000_000
_LONG_NS = 10_000_000_000
_HARDLY = 0.02  # of one processor, on the average of its life
_PARALLEL_BYTES = 4 << 15  # at::internal::GRAIN_SIZE (ATen/Parallel.h) elements of float32
# Operators of torch that share the elements of a large tensor among threads (TensorIterator, at::parallel_for).
_PARALLEL = frozenset(
    {"backward", "add", "sub", "mul", "div", "pow", "exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "relu"}
    | {"gelu", "silu", "abs", "clamp", "where", "softmax", "log_softmax", "matmul", "mm", "bmm", "addmm", "linear"}
    | {"conv1d", "conv2d", "conv3d", "layer_norm", "batch_norm", "dropout", "clone", "float", "double", "half"}
    | {"sum", "mean", "var", "std", "cumsum", "index_select", "gather", "interpolate", "max_pool2d", "avg_pool2d"}
)


def stands_without_team(view: ProcessView, until_ns: int) -> bool:
    """Whether it had recorded nothing for a while: no parallel region of it ends once its parent had a team.

    Records of storages are stamped coarsely: of many since the last stamp, the last may be recent. That counts as
    work where it inherited no tensor that is large enough for a parallel operator of its parent, unless it has hardly
    used a processor: a process that computes now and then is met inside of the runtime no more often than it computes.
    """
    snapshot = view.process.snapshot
    since = snapshot.created_mono_ns
    times, untimed = storage_epochs(snapshot, until_ns)
    own = [time for time in (*timed_records(snapshot, until_ns), *times) if time >= since]
    if until_ns - max(own, default=since) < _SHORT_NS and any(time >= since for time in times):
        return False
    return untimed <= FEW or _hardly_computed(view) or next(_inherited(view), None) is not None


def _hardly_computed(view: ProcessView) -> bool:
    return view.seen_ns >= _LONG_NS and view.cpu_share is not None and view.cpu_share <= _HARDLY


def computed_before(view: ProcessView, parent: ProcessView | None) -> CallSite | None:
    """Where its parent computed a tensor that is large enough for an operator to take threads; None if none is known.

    The line must have an operator that does: to allocate a tensor, to fill it or to read it from elsewhere takes none.
    The child has those that were alive at the fork; `parent`, as far as it is recorded, also those freed before.
    """
    own = [item for item in _inherited(view) if not is_borrowed(item) and _is_computed(view, item.allocated_by)]
    if not own and parent is not None:
        before = _made_before(parent, view.process.snapshot.created_mono_ns)
        own = [item for item in before if not is_borrowed(item) and _is_computed(parent, item.allocated_by)]
    found = max(own, key=lambda item: item.nbytes, default=None)
    return found.allocated_by if found is not None else None


def _is_computed(view: ProcessView, site: CallSite) -> bool:
    place = site.place
    if place is None or place.line is None or is_library_file(place.file):
        return False
    if site.node is not None:
        return True  # a node of autograd ran: the line called backward()
    tree = syntax_tree(view.process.snapshot, PythonFrame(place.function, place.file, place.line))
    statement = statement_at(tree, place.line) if tree is not None else None
    value = getattr(statement, "value", None)
    return isinstance(value, ast.expr) and _computes(value)


def _computes(value: ast.expr) -> bool:
    """Whether the outermost part is such an operator: what it is given may be computed by another library."""
    if isinstance(value, ast.BinOp):
        return True
    return isinstance(value, ast.Call) and called_name(value) in _PARALLEL


def _inherited(view: ProcessView) -> Iterator[Storage]:
    """Those that were alive at the fork, and are large enough."""
    return _made_before(view, view.process.snapshot.created_mono_ns)


def _made_before(view: ProcessView, until_ns: int) -> Iterator[Storage]:
    for item in view.process.snapshot.storages:
        made = item.allocated.mono_ns
        if item.nbytes >= _PARALLEL_BYTES and made is not None and made < until_ns:
            yield item
