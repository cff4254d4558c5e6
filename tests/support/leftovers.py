"""Processes that a job left behind, found by a token in their environment."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

GRACE_SECONDS = 10


def leftovers(token: str, grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """Command lines of processes with `token` in their environment that do not exit; they are killed."""
    deadline = time.monotonic() + grace_seconds
    while (left := _with(token)) and time.monotonic() < deadline:
        time.sleep(0.02)
    found = [f"{pid}: {_read(pid, 'cmdline').replace(chr(0), ' ')}(waits in {_read(pid, 'wchan')})" for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    return found


def _with(token: str) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and token in _read(int(name), "environ")]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
