"""Calls that may give all ranks the same value, by their names."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value

SHARING = ("reduce", "gather", "cast", "sync", "agree", "share", "compute")  # parts of names of functions of libraries
_OF_TENSORS = frozenset({"broadcast_to", "broadcast_tensors", "scatter_reduce", "autocast", "no_sync", "synchronize"})


def is_of_tensor(call: ast.Call) -> bool:
    """`x.gather(-1, index)`, `x.broadcast_to(y.shape)`: of one tensor, though named like what shares between ranks."""
    if called_name(call) != "gather":
        return called_name(call) in _OF_TENSORS
    first = call.args[0] if call.args else None
    number = first.operand if isinstance(first, ast.UnaryOp) else first
    return isinstance(number, ast.Constant) or keyword_value(call, "dim", "index") is not None


def may_share(call: ast.Call) -> bool:
    """`dist.all_reduce(x)`, `sync(x)`; not what is of one tensor alone."""
    return not is_of_tensor(call) and any(part in (called_name(call) or "") for part in SHARING)
