"""Variants of a workload: untraced, a level of pytracer, or an alternative tool."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from support.measuring import version


@dataclass(frozen=True)
class Variant:
    """One way to run.

    `level`: of pytracer, preloaded as under `pytracer run`; `switch`: what the worker turns on itself; `command`: put
    between the interpreter and the worker; `sampler`: a process beside it while it has its turn.
    """

    name: str
    level: str = ""
    switch: str = ""
    command: tuple[str, ...] = ()
    sampler: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    needs: str = ""

    @property
    def missing(self) -> str:
        """Why it cannot run here; "" when it can."""
        if self.sampler and shutil.which(self.sampler[0], path=_path()) is None:
            return f"{self.sampler[0]} is not installed: pip install -e '.[bench]'"
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed: pip install -e '.[bench]'"
        return ""


PLAIN, AGAIN = Variant("untraced"), Variant("untraced again")
LEVELS = tuple(Variant(f"pytracer {level}", level=level) for level in ("light", "default", "ops"))
FAULTHANDLER = Variant("faulthandler", switch="faulthandler")
PROFILER = Variant("torch.profiler", switch="profiler")
ANOMALY = Variant("anomaly mode", switch="anomaly")
MEMRAY = Variant("memray run", command=("-m", "memray", "run", "--quiet", "--force", "-o"), needs="memray")
PY_SPY = Variant("py-spy record", sampler=("py-spy", "record", "--rate", "100", "--duration", "100000"))
PEERS = (FAULTHANDLER, PROFILER, ANOMALY, MEMRAY, PY_SPY)
NO_FLIGHT_RECORDER = Variant("Flight Recorder off", environment={"TORCH_FR_BUFFER_SIZE": "0"})


def _path() -> str:
    return os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")


def environment(variant: Variant, directory: Path) -> dict[str, str]:
    """As `pytracer run --level LEVEL` would set it; without any of it for the others."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTRACER_", "LD_PRELOAD"))}
    plain |= {"OMP_NUM_THREADS": "1", **variant.environment}
    if not variant.level:
        return plain
    from pytracer.launcher import run_directory

    (directory / run_directory.BOXES).mkdir(parents=True, exist_ok=True, mode=0o700)
    return run_directory.environment(run_directory.Run(directory, directory), variant.level, plain)


def switched_on(switch: str) -> Callable[[], AbstractContextManager[object]]:
    """For the worker: turns on what stays on, returns what surrounds each round."""
    if switch == "faulthandler":
        import faulthandler

        faulthandler.enable()
    elif switch == "anomaly":
        import torch

        torch.autograd.set_detect_anomaly(True, check_nan=True)
    elif switch == "profiler":
        from torch.profiler import ProfilerActivity, profile

        return lambda: profile(activities=[ProfilerActivity.CPU])
    return nullcontext


class Sampler:
    """A tool that samples a process from outside, stopped during the turns of other variants."""

    def __init__(self, variant: Variant, pid: int, output: Path) -> None:
        program = shutil.which(variant.sampler[0], path=_path()) or variant.sampler[0]
        self.process = subprocess.Popen(
            [program, *variant.sampler[1:], "--pid", str(pid), "--format", "raw", "-o", str(output)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def go(self, on: bool) -> None:
        """Lets it run, or stops it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def close(self) -> None:
        """Ends it."""
        self.go(True)
        self.process.terminate()
        self.process.wait()


def versions(variants: tuple[Variant, ...]) -> dict[str, str]:
    """Versions of the tools among them that are packages of their own."""
    names = {"memray": MEMRAY in variants, "py-spy": PY_SPY in variants}
    return {name: version(name) for name, wanted in names.items() if wanted}
