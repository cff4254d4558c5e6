"""The recording half: starts the core, installs the torch hooks, writes what only Python knows.

Standard library only; torch and `_native` are imported inside functions, and only when the program has imported torch.
"""

from __future__ import annotations

from pytracer.record.names import name
from pytracer.record.recording import disable, enable, is_enabled, mark, step

__all__ = ["disable", "enable", "is_enabled", "mark", "name", "step"]
