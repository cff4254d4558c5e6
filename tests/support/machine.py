"""One line about the machine, for pages that hold measurements."""

from __future__ import annotations

import importlib.metadata
import os
import platform


def machine() -> str:
    """Architecture, cores and versions; nothing that names the machine."""
    libc, version = platform.libc_ver()
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, {libc} {version}, "
        f"CPython {platform.python_version()}, torch {importlib.metadata.version('torch')}"
    )
