"""Lets one process at a time use the device: the others wait at their first use of CUDA, after their imports.

While a core dump of a device is written, errors of processes that share it are told to the wrong one.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def _wait_for_turn() -> None:
    """Held until the process ends."""
    lock = os.open(os.environ["PYTRACER_GPU_LOCK"], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)


class _AfterImport:
    """Finds torch.cuda, once, and asks it to wait when CUDA is initialized."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch.cuda":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def and_wait(module: ModuleType) -> None:
            execute(module)
            module._lazy_call(_wait_for_turn)

        spec.loader.exec_module = and_wait  # type: ignore[method-assign]
        return spec


if "PYTRACER_GPU_LOCK" in os.environ:
    sys.meta_path.insert(0, _AfterImport())
