"""Medians with spread, the machine that numbers belong to, and progress on stderr."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and the middle half."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": middle, "low": low, "high": high}


def undisturbed(values: Sequence[float]) -> float:
    """The 10th percentile: of many short measurements those that other machines on the same cores did not disturb."""
    return statistics.quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]


def version(package: str) -> str:
    """The installed version of a package, or "none"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def machine() -> dict[str, str]:
    """The machine and the versions that the numbers apply to."""
    from pytracer._version import __version__  # here: a worker that imports this file must not have pytracer loaded

    info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = next(
        (line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "cpu": f"{os.cpu_count()} x {model}",
        "load": f"{os.getloadavg()[1]:.1f}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "pytracer": __version__,
    }


def machine_words(about: Mapping[str, str]) -> str:
    """The machine in one line."""
    return ", ".join(f"{key} {value}" for key, value in about.items())


def half(values: Mapping[str, float], digits: int = 2) -> str:
    """The middle half in words."""
    return f"{values['low']:.{digits}f} - {values['high']:.{digits}f}"


def progress(line: str) -> None:
    """Shows progress on a terminal; "" clears it."""
    if sys.stderr.isatty():
        print(f"\r{line:<70}" + ("" if line else "\r"), end="", file=sys.stderr, flush=True)
