"""What happens after an optimizer's step: steps are counted, and now and then names are noted again.

The hook itself is native (csrc/hooks/optimizer_step.cpp). It counts the steps of the first optimizer, unless the
program calls pytracer.step() itself, and calls back for an optimizer that it does not know and when the time has come.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

_handle: Any = None
_native: Any = None
_followed: dict[int, weakref.ref[Any]] = {}


def install(native: Any, attend: Callable[[Any], int]) -> None:
    """Registers torch's global post-step hook. `attend` is given an optimizer; it says when to be called again (ns)."""
    global _handle, _native
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def follow_and_attend(optimizer: Any) -> int:
        _follow(native, optimizer)
        return attend(optimizer)

    stepped = native.optimizer_stepped

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        stepped(optimizer)

    _native = native
    native.attend_steps(follow_and_attend, getattr(_dynamo(), "set_eval_frame", None))
    if _handle is None:
        _handle = register_optimizer_step_post_hook(_out_of_dynamos_sight(after_step))


def uninstall() -> None:
    """Removes the hook."""
    global _handle
    if _handle is not None:
        _handle.remove()
        _native.attend_steps(None, None)
        _followed.clear()
        _handle = None


def _follow(native: Any, optimizer: Any) -> None:
    """The hook knows optimizers by their addresses: one that dies must be forgotten, before another one lies there."""
    key = id(optimizer)
    known = _followed.get(key)
    if known is not None and known() is optimizer:
        return

    def gone(ref: weakref.ref[Any]) -> None:
        if _followed.get(key) is ref:
            del _followed[key]
            native.forget_optimizer(key)

    _followed[key] = weakref.ref(optimizer, gone)


def _out_of_dynamos_sight(function: Any) -> Any:
    """In a compiled optimizer step: called, not traced. In its place, a native function would make dynamo warn."""
    function._torchdynamo_disable = True  # not to be inlined
    skip = getattr(_dynamo(), "skip_code", None)
    if skip is not None:
        skip(function.__code__)  # nor to be compiled by itself
    return function


def _dynamo() -> Any:
    """The native half of torch._dynamo, there without importing the other one; None where this torch has none."""
    import torch

    return getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
