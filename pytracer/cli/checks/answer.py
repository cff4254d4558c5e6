"""A result of `pytracer doctor`, and the child processes that checks use."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pytracer._errors import PytracerError, RecordingError
from pytracer._torch_libraries import installed
from pytracer.blackbox import codec, structures
from pytracer.launcher import run_directory

WORKS, LIMITED, MISSING = "works", "limited", "missing"
_SECONDS = 120


@dataclass(frozen=True)
class Check:
    """One result: "works", "limited" or "missing"; recording is impossible without an essential one."""

    id: str
    result: str
    detail: str
    next: str = ""
    essential: bool = False


def has_hooks() -> bool:
    """Whether there are hooks for the torch that is installed."""
    try:
        installed()
    except RecordingError:
        return False
    return True


def is_built() -> bool:
    """Whether there is a core that can be preloaded."""
    try:
        run_directory.core_library()
    except PytracerError:
        return False
    return True


def run(
    command: list[str], environment: dict[str, str] | None = None, directory: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a child with a time limit; its streams are text."""
    return subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, errors="replace", timeout=_SECONDS,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def python(
    code: str, environment: dict[str, str] | None = None, directory: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a child."""
    return run([sys.executable, "-c", code], environment, directory)


def traced(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python child under the preloaded core, recording into `directory`."""
    (directory / run_directory.BOXES).mkdir(mode=0o700)
    return run(
        [sys.executable, *command],
        run_directory.environment(run_directory.Run(directory, directory), "default"),
        str(directory),
    )


def boxes(directory: str | Path) -> list[Path]:
    """The recordings that children left in a run directory."""
    return sorted(Path(directory, run_directory.BOXES).glob("*" + run_directory.BOX_SUFFIX))


def box_state(path: Path) -> int:
    """The header's state of a recording; -1: it has no header."""
    nbytes = codec.layout_of(structures.FileHeader).nbytes
    data = path.read_bytes()[:nbytes]
    return codec.decode(structures.FileHeader, data).state if len(data) == nbytes else -1


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of a child's output."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else "no output"


def because(done: subprocess.CompletedProcess[str]) -> str:
    """The same in brackets, if there is any."""
    return f"({last_line(done)})" if done.stderr.strip() else ""
