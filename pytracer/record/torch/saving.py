"""Where asynchronous checkpoints were asked for: the thread that writes one has only torch's own lines on its stack."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch.rendezvous import calling_line

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 1000  # of a process; the journal has 2 MiB

_patches = Patches()
_noted = 0


def install(box: Core) -> None:
    """Wraps what async_save() calls on the thread of the program. Its module is imported."""
    module = importlib.import_module("torch.distributed.checkpoint._async_thread_executor")
    executor = module._ThreadBasedAsyncCheckpointExecutor
    execute: Callable[..., object] = executor.execute_save

    @functools.wraps(execute)
    def note_and_execute(*args: object, **kwargs: object) -> object:
        _note(box)
        return execute(*args, **kwargs)

    _patches.replace(executor, "execute_save", note_and_execute)


def _note(box: Core) -> None:
    """Writes DOING. Never raises."""
    global _noted
    try:
        if _noted < MOST and box.recording:
            _noted += 1
            box.journal(Entry.DOING, {"kind": "async_save", "text": "", **(calling_line() or {})})
    except Exception:
        box.lib.pytracer_count_hook_error()


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()
