"""After an optimizer's step: counts steps, and now and then records names again.

The hook itself is native (csrc/hooks/execution/optimizer_step.cpp). It counts the steps of the first optimizer, unless
the program calls pytracer.step() itself, and calls back for an unknown optimizer and when the time has come. Of
optimizers that step within one graph of torch.compile, the last is recorded once for each run of the graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.torch.library import TorchLibrary

if TYPE_CHECKING:
    from pytracer.record.torch_objects import Hook, Optimizer

_handle: Hook | None = None
_hooks: TorchLibrary | None = None
_followed: dict[int, weakref.ref[object]] = {}


def install(hooks: TorchLibrary, attend: Callable[[Optimizer], int]) -> None:
    """Registers torch's global post-step hook. `attend` gets an optimizer, and returns when to be called again (ns)."""
    global _handle, _hooks
    from torch.optim.optimizer import register_optimizer_step_post_hook

    @unseen
    def follow_and_attend(optimizer: Optimizer) -> int:
        _follow(hooks, optimizer)
        return attend(optimizer)

    steps = hooks.optimizer_steps()

    @unseen
    def after_step(optimizer: Optimizer, args: object, kwargs: object) -> None:
        steps.last = optimizer  # calls; a call is what dynamo could not compile

    _hooks = hooks
    hooks.attend_steps(follow_and_attend)
    if _handle is None:
        _handle = register_optimizer_step_post_hook(after_step)


def uninstall() -> None:
    """Removes the hook."""
    global _handle
    if _handle is not None and _hooks is not None:
        _handle.remove()
        _hooks.attend_steps(None)
        _followed.clear()
        _handle = None


def _follow(hooks: TorchLibrary, optimizer: Optimizer) -> None:
    """The hook identifies optimizers by address: a destroyed one is removed before another one gets its address."""
    key = id(optimizer)
    known = _followed.get(key)
    if known is not None and known() is optimizer:
        return

    @unseen
    def gone(ref: weakref.ref[object]) -> None:
        if _followed.get(key) is ref:
            del _followed[key]
            hooks.forget_optimizer(key)

    _followed[key] = weakref.ref(optimizer, gone)
