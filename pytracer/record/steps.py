"""Training steps, counted by the first optimizer that steps, unless the program calls pytracer.step() itself."""

from __future__ import annotations

import weakref
from typing import Any

from pytracer.record.core import STEP_COUNTED, Core

_handle: Any = None


class _Counter:
    """Counts the steps of one optimizer; others are ignored (a GAN has two, and one of them is enough)."""

    def __init__(self, box: Core) -> None:
        self._step = box.lib.pytracer_step
        self._optimizer: weakref.ref[Any] | None = None
        self._count = 0

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._count += 1
            self._step(self._count, STEP_COUNTED)


def install(box: Core) -> None:
    """Registers torch's global post-step hook: about 1 us per optimizer step."""
    global _handle
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if _handle is None:
        _handle = register_optimizer_step_post_hook(_Counter(box))


def uninstall() -> None:
    """Removes the hook."""
    global _handle
    if _handle is not None:
        _handle.remove()
        _handle = None
