"""Whether torch records gradients at an exception, and which tensors of an error about a missing graph have one.

Attributes of tensors of exactly torch's types and settings of the thread: no operator of torch's runs. At the top of a
program every `with torch.no_grad()` has been left: what is still off there, was switched off without one.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from types import ModuleType, TracebackType
from typing import Any

from pytracer.record.torch.frame_variables import of_program, without_modes
from pytracer.record.torch.near_names import TABLES, attributes_of

_NO_GRAPH = "does not require grad and does not have a grad_fn"
_MOST = 12
_LOOKED_AT = 256
_NAME_CHARACTERS = 60


def gradient_state(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """As variables: `torch.is_grad_enabled()` where it is off, `loss.requires_grad`, `parameters of model`, and
    `frozen layers of model`, where only some are.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    with without_modes():
        found = [{"name": "torch.is_grad_enabled()", "value": "False"}] if not torch.is_grad_enabled() else []
        if torch.is_inference_mode_enabled():
            found.append({"name": "torch.is_inference_mode_enabled()", "value": "True"})
        if error.args and type(error.args[0]) is str and _NO_GRAPH in error.args[0]:
            found += itertools.islice(_graphs(torch, trace), _MOST)
    return found


def _graphs(torch: ModuleType, trace: TracebackType | None) -> Iterator[dict[str, str]]:
    """Of the tensors and modules in the innermost frame of the program."""
    own, kinds = of_program(trace), (torch.Tensor, torch.nn.Parameter)
    for name, value in itertools.islice(own.tb_frame.f_locals.items(), _LOOKED_AT) if own is not None else ():
        if type(value) in kinds and value.dtype.is_floating_point:
            yield {"name": f"{name[:_NAME_CHARACTERS]}.requires_grad", "value": str(bool(value.requires_grad))}
        elif type(attributes_of(value).get("_parameters")) in TABLES:
            held = [item for item in _parameters(value) if type(item) in kinds]
            trained = sum(bool(item.requires_grad) for item in held)
            words = f"{trained} of {len(held)} require a gradient"
            yield {"name": f"parameters of {name[:_NAME_CHARACTERS]}", "value": words}
            frozen = [*itertools.islice(_frozen(value, kinds), _MOST)] if trained and trained < len(held) else []
            if frozen:
                text = ", ".join(item[:_NAME_CHARACTERS] for item in frozen)
                yield {"name": f"frozen layers of {name[:_NAME_CHARACTERS]}", "value": text}


def _parameters(module: object, level: int = 0) -> list[Any]:
    own = attributes_of(module)
    held, layers = own.get("_parameters"), own.get("_modules")
    found = [*held.values()] if type(held) in TABLES and held is not None else []
    for layer in layers.values() if type(layers) in TABLES and layers is not None and level < _MOST else ():
        found += _parameters(layer, level + 1)
    return found


def _frozen(module: object, kinds: tuple[type, ...], within: str = "", level: int = 0) -> Iterator[str]:
    """The outermost layers of which no parameter requires a gradient, by their paths."""
    layers = attributes_of(module).get("_modules")
    for name, layer in layers.items() if type(layers) in TABLES and layers is not None and level < _MOST else ():
        held = [item for item in _parameters(layer, level + 1) if type(item) in kinds]
        if held and not any(item.requires_grad for item in held):
            yield f"{within}{name}"
        elif held:
            yield from _frozen(layer, kinds, f"{within}{name}.", level + 1)
