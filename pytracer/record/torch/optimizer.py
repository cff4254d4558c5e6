"""What happens after an optimizer's step: steps are counted, and now and then names are noted again.

The hook is native (csrc/hooks/execution/optimizer_step.cpp). It counts the steps of the first optimizer, unless the
program calls pytracer.step() itself, and calls back for an optimizer that it does not know and when the time has come.
Optimizers that step within one graph of torch.compile's are seen once for each run of the graph, by the last of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pytracer.record.bootstrap.dynamo import unseen

_handle: Any = None
_native: Any = None
_followed: dict[int, weakref.ref[object]] = {}


def install(native: ModuleType, attend: Callable[[Any], int]) -> None:
    """Registers torch's global post-step hook. `attend` is given an optimizer; it says when to be called again (ns)."""
    global _handle, _native
    from torch.optim.optimizer import register_optimizer_step_post_hook

    @unseen
    def follow_and_attend(optimizer: Any) -> int:
        _follow(native, optimizer)
        return attend(optimizer)

    steps = native.optimizer_steps()

    @unseen
    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        steps.last = optimizer  # calls; a call is what dynamo could not compile

    _native = native
    native.attend_steps(follow_and_attend)
    if _handle is None:
        _handle = register_optimizer_step_post_hook(after_step)


def uninstall() -> None:
    """Removes the hook."""
    global _handle
    if _handle is not None:
        _handle.remove()
        _native.attend_steps(None)
        _followed.clear()
        _handle = None


def _follow(native: ModuleType, optimizer: Any) -> None:
    """The hook knows optimizers by their addresses: one that dies must be forgotten, before another one lies there."""
    key = id(optimizer)
    known = _followed.get(key)
    if known is not None and known() is optimizer:
        return

    @unseen
    def gone(ref: weakref.ref[object]) -> None:
        if _followed.get(key) is ref:
            del _followed[key]
            native.forget_optimizer(key)

    _followed[key] = weakref.ref(optimizer, gone)
