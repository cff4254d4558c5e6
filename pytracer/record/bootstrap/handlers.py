"""Keeps the crash handler outermost without preload, where `sigaction` is not interposed.

A handler installed later would be called instead, and chain to ours by raising the signal again, without the address;
or, like that of a DataLoader worker, not at all. Two installers are common, and both are called through Python:
faulthandler and torch's DataLoader workers. After they have run, our handler is installed again and chains to it.
"""

from __future__ import annotations

import faulthandler
import functools
from types import ModuleType

from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

_faulthandler, _workers = Patches(), Patches()


def install(box: Core) -> None:
    """Wraps faulthandler.enable. Not with preload, where every `sigaction` is interposed."""
    _wrap(box, _faulthandler, faulthandler, "enable")


def install_for_workers(box: Core) -> None:
    """Wraps the first call of a DataLoader worker. Not with preload."""
    from torch.utils.data._utils import signal_handling

    _wrap(box, _workers, signal_handling, "_set_worker_signal_handlers")


def uninstall() -> None:
    """Restores what is still ours."""
    _faulthandler.put_back()
    _workers.put_back()


def _wrap(box: Core, patches: Patches, module: ModuleType, name: str) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def install_and_cover(*args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)
        if box.recording:
            box.lib.pytracer_stop()
            box.lib.pytracer_resume()
        return result

    patches.replace(module, name, install_and_cover)
