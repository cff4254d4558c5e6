"""Of an optimizer's step() that failed by sizes: the first parameter whose state has another shape than it has itself.

Attributes of tensors of exactly torch's types: no operator of torch's runs.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from pytracer.record.torch.changed_parameter import named_parameters
from pytracer.record.torch.frame_variables import programs_frames, without_modes
from pytracer.record.torch.near_names import attributes_of

_MESSAGE = re.compile(r"size of tensor a \(\d+\) must match|doesn't match the broadcast shape|same (?:shape|size)")
_MOST_PARAMETERS = 4096
_NAME_CHARACTERS = 60
_STATES = 8
# Of torch 2.13's optimizers, as large as their parameters: not Adafactor's rows and columns, nor LBFGS's directions.
_OF_ADAM = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf")
_OF_OTHERS = ("momentum_buffer", "square_avg", "grad_avg", "acc_delta", "sum", "ax", "prev", "step_size")
_AS_LARGE = frozenset({*_OF_ADAM, *_OF_OTHERS})


def unfit_state(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """As variable `unfit state`: `exp_avg [8, 3] of net.fc.weight [24, 16], 5 of 6`; all of those that do not fit."""
    text = error.args[0] if error.args and type(error.args[0]) is str else ""
    torch = sys.modules.get("torch")
    if torch is None or _MESSAGE.search(text) is None:
        return []
    optimizer = _stepped(trace)
    if optimizer is None:
        return []
    with without_modes():
        kinds = (torch.Tensor, torch.nn.Parameter)
        total, unfit = 0, list[tuple[Any, str, Any]]()
        for parameter, held in itertools.islice(_states(optimizer, kinds), _MOST_PARAMETERS):
            total += 1
            unfit += [(parameter, key, item) for key, item in held if item.shape != parameter.shape][:1]
        if not unfit:
            return []
        parameter, key, item = unfit[0]
        name = _name(parameter, trace)
        value = f"{key} {_shape(item)} of {name} {_shape(parameter)}, {len(unfit)} of {total}"
    return [{"name": "unfit state", "value": value}]


def _stepped(trace: TracebackType | None) -> dict[str, Any] | None:
    """Attributes of the innermost optimizer of torch's own whose step() is on the stack."""
    found = None
    while trace is not None:
        frame = trace.tb_frame
        if "/torch/optim/" in frame.f_code.co_filename and frame.f_code.co_name == "step":
            own = attributes_of(frame.f_locals.get("self"))
            found = own if type(own.get("param_groups")) is list else found
        trace = trace.tb_next
    return found


def _states(optimizer: dict[str, Any], kinds: tuple[type, ...]) -> Iterator[tuple[Any, list[tuple[str, Any]]]]:
    """Of each parameter that has some, those that are as large: tensors of one number count steps."""
    table = optimizer.get("state")
    if type(table) not in (dict, defaultdict) or table is None:
        return
    for group in optimizer["param_groups"]:
        params = group.get("params") if type(group) is dict else None
        for parameter in params if type(params) is list else ():
            state = dict.get(table, parameter) if type(parameter) in kinds else None
            if type(state) is dict:
                items = itertools.islice(state.items(), _STATES)
                held = [
                    (key, item) for key, item in items if type(key) is str and key in _AS_LARGE and type(item) in kinds
                ]
                held = [(key, item) for key, item in held if item.dim()]
                yield parameter, held


def _name(parameter: object, trace: TracebackType | None) -> str:
    """As the program's frames reach it: `self.net.fc.weight`; `a parameter` where none does."""
    for frame in programs_frames(trace):
        for name, item in itertools.islice(named_parameters(frame), _MOST_PARAMETERS):
            if item is parameter and len(name) <= _NAME_CHARACTERS and " " not in name:
                return name
    return "a parameter"


def _shape(item: Any) -> str:
    return f"[{', '.join(str(int(size)) for size in item.shape)}]"
