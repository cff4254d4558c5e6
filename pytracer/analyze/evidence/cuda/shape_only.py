"""Operators that use no more of a tensor than its shape, or only call others."""

from __future__ import annotations

from pytracer.analyze.evidence.cuda.launches import Launch

_NAMES = frozenset({"_to_copy", "_pin_memory", "is_same_size", "result_type", "type_as"})


def uses_freed(launch: Launch) -> bool:
    """Whether it was given a tensor that has elements but no memory, and uses what is in its operands."""
    return bool(launch.without_memory) and uses_contents(launch)


def uses_contents(launch: Launch) -> bool:
    """False for views, and for `empty_like` and the like."""
    operator = launch.operator
    shape_only = operator in _NAMES or operator.endswith("_like") or operator.startswith(("new_", "is_"))
    return launch.has_kernel and not shape_only and "resize" not in operator
