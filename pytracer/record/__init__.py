"""Runs in the traced process: starts the core, installs the torch hooks, records state that only Python exposes.

Standard library only; functions import torch and load its hooks, and only after the program has imported torch.
The preloaded core does not need the public functions, which are imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytracer.record.api import disable, enable, is_enabled, mark, step
    from pytracer.record.torch.names import name

__all__ = ["disable", "enable", "is_enabled", "mark", "name", "step"]


def __getattr__(attribute: str) -> object:
    if attribute not in __all__:
        raise AttributeError(f"module 'pytracer.record' has no attribute {attribute!r}")
    import importlib

    module = "pytracer.record.torch.names" if attribute == "name" else "pytracer.record.api"
    return getattr(importlib.import_module(module), attribute)
