"""Settings of the recording half, and the PYTRACER_* variables behind them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pytracer.blackbox.numbers import LEVELS


def level_from_environment() -> str:
    """PYTRACER_LEVEL; "default" if it is unset or invalid (the launcher has reported that)."""
    level = os.environ.get("PYTRACER_LEVEL", "default")
    return level if level in LEVELS else "default"


def guard_words() -> str | None:
    """PYTRACER_GUARD: guard mode, with the options of `--guard`; None if unset or empty."""
    return os.environ.get("PYTRACER_GUARD") or None


def warns_of_broken_graphs() -> bool:
    """PYTRACER_CUDA_GRAPHS=warn: warn at the replay of a CUDA graph whose inputs were freed."""
    return os.environ.get("PYTRACER_CUDA_GRAPHS") == "warn"


def records_values() -> bool:
    """Whether minimum and maximum of small integer tensors, and numbers of variables, may be recorded: not with
    PYTRACER_NO_VALUES=1.
    """
    return os.environ.get("PYTRACER_NO_VALUES") != "1"


def default_directory() -> Path:
    """The default run directory: PYTRACER_DIR, else a new one below `runs/`.

    The ranks of one job share it: its name has the start time and pid of their common parent.
    """
    given = os.environ.get("PYTRACER_DIR")
    if given:
        return Path(os.path.abspath(given))
    from pytracer import _paths as paths  # imported here: with preload the directory is given

    word = paths.command_word(["python", *sys.argv])
    pid, started = os.getpid(), time.time()
    if "LOCAL_RANK" in os.environ or "RANK" in os.environ:
        pid = os.getppid()
        started = _start_of(pid) or started
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
    return Path(os.path.abspath(paths.RUNS), f"{stamp}-{word}-{pid}")


def _start_of(pid: int) -> float | None:
    """Wall-clock start of a process: field 22 of /proc/PID/stat, in ticks since boot (proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return round(boot + int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, IndexError, ValueError):
        return None
