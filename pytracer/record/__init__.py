"""The recording half: starts the core, installs the torch hooks, writes what only Python knows.

Standard library only; torch and `_native` are imported inside functions, and only when the program has imported torch.
What the preloaded core starts needs nothing of the public face, which is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytracer.record.api import disable, enable, is_enabled, mark, step
    from pytracer.record.torch.names import name

__all__ = ["disable", "enable", "is_enabled", "mark", "name", "step"]


def __getattr__(attribute: str) -> Any:
    if attribute not in __all__:
        raise AttributeError(f"module 'pytracer.record' has no attribute {attribute!r}")
    import importlib

    module = "pytracer.record.torch.names" if attribute == "name" else "pytracer.record.api"
    return getattr(importlib.import_module(module), attribute)
