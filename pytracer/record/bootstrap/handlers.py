"""Keeps the crash handler outermost where nothing is preloaded, so that `sigaction` cannot be watched.

A handler that is installed after ours would be called instead of it, and hand over to ours by raising the signal
again, without the address; or, like that of a DataLoader worker, not at all. Two installers are common, and both are
reached through Python: faulthandler and torch's DataLoader workers. Once they have run, ours is installed over theirs,
and calls theirs when it is done.
"""

from __future__ import annotations

import faulthandler
import functools
from typing import Any

from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

_faulthandler, _workers = Patches(), Patches()


def install(box: Core) -> None:
    """Wraps faulthandler.enable. Not below preload, where every `sigaction` is seen."""
    _wrap(box, _faulthandler, faulthandler, "enable")


def install_for_workers(box: Core) -> None:
    """Wraps what a DataLoader worker calls first. Not below preload."""
    from torch.utils.data._utils import signal_handling

    _wrap(box, _workers, signal_handling, "_set_worker_signal_handlers")


def uninstall() -> None:
    """Puts back what is still ours."""
    _faulthandler.put_back()
    _workers.put_back()


def _wrap(box: Core, patches: Patches, module: Any, name: str) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def install_and_cover(*args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)
        if box.recording:
            box.lib.pytracer_stop()
            box.lib.pytracer_resume()
        return result

    patches.replace(module, name, install_and_cover)
