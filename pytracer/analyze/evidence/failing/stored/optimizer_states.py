"""State that an optimizer never made: it does so for a parameter at the first step() that finds a gradient there."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.resumed_schedules import resumed_schedule

_LACKS = Pattern(r"Missing key in checkpoint state_dict: ([\w.\-]+?)\.?\s*$", re.MULTILINE)
_PARTS = (
    *("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "grad_avg"),
    *("acc_delta", "sum", "prev", "step_size", "eta", "mu", "ax"),
)
_KEY = Pattern(rf"(?:^|\.)state\.(?P<parameter>.+)\.(?:{'|'.join(_PARTS)})$")
_STATE = Pattern(r"(?:^|\.)state\[.+\]$")


def unmade_state(at: FailingLine) -> str | None:
    """A checkpoint without the state of one parameter, or an optimizer that has none of it, or no schedule's rate."""
    return _of_checkpoint(at) or _of_optimizer(at) or resumed_schedule(at)


def _of_checkpoint(at: FailingLine) -> str | None:
    found, call = _LACKS.search(at.message), at.only(ast.Call)
    key = _KEY.search(found[1]) if found is not None else None
    if found is None or key is None:
        return None
    planned = call is None or any(item.arg in (None, "planner") for item in call.keywords)
    partly = "" if planned or call is None else (
        f"pass `planner=DefaultLoadPlanner(allow_partial_load=True)` to `{source(call.func)}()`, or "
    )  # fmt: skip
    return (
        f"The checkpoint has no optimizer state of `{key['parameter']}`, as of one that had no gradient before the "
        f"save: else that model lacked it, or another optimizer was saved. To begin it anew, {partly}take such keys "
        "out first."
    )


def _of_optimizer(at: FailingLine) -> str | None:
    """`optimizer.state[p]["exp_avg"]`."""
    node = at.only(ast.Subscript) if at.kind == "KeyError" and at.own else None
    if node is None or at.message.strip("'\"") not in _PARTS or _STATE.search(ast.unparse(node.value)) is None:
        return None
    if not isinstance(node.slice, ast.Constant) or node.slice.value != at.message.strip("'\""):
        return None
    table = source(node.value)
    return (
        f"`{table}` has no {at.message.strip()}: an optimizer makes the state of a parameter at the first step() that "
        f"finds a gradient there, and not every kind makes this one. Read it after that, and skip parameters without "
        f"(`if {at.message.strip()} in {table}`)."
    )
