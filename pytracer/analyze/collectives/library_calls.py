"""The function of a library that called a collective inside: `ZeroRedundancyOptimizer.consolidate_state_dict`."""

from __future__ import annotations

import ast

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.collectives.call_sites import stacks_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.own_lines import calls_of_line
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

# What only hands a call on (torch 2.13).
_WRAPPERS = Pattern(
    r"/torch/utils/_contextlib\.py$|/c10d_logger\.py$|/torch/nn/modules/module\.py$|/contextlib\.py$|/functools\.py$"
    r"|/pytracer/record/|/typing_extensions\.py$|/torch/_compile\.py$|/torch/_dynamo/"
)
_INNER = ".<locals>."
_DDP = Pattern(r"/torch/nn/parallel/distributed\.py$")
_C10D = Pattern(r"/torch/distributed/distributed_c10d\.py$")


def library_call(view: ProcessView, call: Collective) -> str | None:
    """`Tensor.backward`; None where the line called the collective itself, or its stack is not known.

    Args:
        view: The rank.
        call: The collective that it stands in, or that failed.
    """
    at = place_of(call)
    for stack in stacks_of(view):
        if at is None or at not in stack:
            continue
        for frame in reversed(stack[: stack.index(at)]):
            name, file = frame.function or "", frame.file or ""
            if not is_library_file(file):
                return None
            if _WRAPPERS.search(file) or _INNER in name or not name:
                continue
            direct = _C10D.search(file) and name in (call.op, f"{call.op}_coalesced")
            return None if direct else _as_called(view, at, name)
    return None


def is_of_ddp(call: Collective) -> bool:
    """Whether DistributedDataParallel called it from Python: not the reduction of gradients, which C++ calls."""
    return call.python is not None and _DDP.search(call.python.file) is not None


def _as_called(view: ProcessView, at: PythonFrame, name: str) -> str:
    """Of a function the program's own words for it: `dcp.save`."""
    calls = [] if "." in name else calls_of_line(view.process.snapshot, at)
    return next((ast.unparse(item.func) for item in calls if called_name(item) == name), name)
