"""inductor's cudagraph trees, with a plain function in place of a compiled one: no compiler is needed."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch._inductor.cudagraph_trees import cudagraphify_impl

FRAME = '  File "/home/me/model.py", line 31, in attention\n    return q @ k\n'


def scaled(inputs: list[Any]) -> list[torch.Tensor]:
    """As inductor's functions do, it takes its inputs out of the list."""
    x, weight = inputs
    inputs.clear()
    return [x * weight + 1]


def call(inputs: list[Any]) -> list[torch.Tensor]:
    """Has the name that inductor gives every function it generates."""
    (x,) = inputs
    inputs.clear()
    return [x * 2]


def main(end: str) -> None:
    """Two graphs, each warmed up, recorded, and replayed three times."""
    x, weight = torch.ones(1 << 10, device="cuda"), torch.ones(1 << 10, device="cuda")
    placeholder: Any = SimpleNamespace(name="q", stack_trace=FRAME, users=[], mutating_use_stack_trace=None)
    mode: dict[str, Any] = {"device_index": 0, "is_backward": False, "is_inference": True, "stack_traces": [None]}
    first = cudagraphify_impl(scaled, [x, weight], (1,), **mode)
    second = cudagraphify_impl(call, [x], (), placeholders=(placeholder,), **mode)
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        (out,) = first([x.clone(), weight])
        (out,) = second([out.clone()])
    torch.cuda.synchronize()
    if end == "fault":
        ctypes.string_at(out.data_ptr(), 4)


if __name__ == "__main__":
    main(*sys.argv[1:])
