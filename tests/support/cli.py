"""Runs the command line as a user would, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "pytracer-run"


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without what could trace or colour, and with the repository importable."""
    kept = {
        n: v for n, v in os.environ.items() if not n.startswith(("PYTRACER_", "LD_PRELOAD", "FORCE_COLOR", "GITHUB_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def pytracer(*arguments: str | Path, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python -m pytracer ARGUMENTS`, with its status and both streams as text."""
    return call(sys.executable, "-m", "pytracer", *arguments, cwd=cwd, **options)


def call(*command: str | Path, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Any command, in the same way."""
    options.setdefault("env", clean_environment())
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=120, check=False, **options
    )


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr; fails when there are more, none, or a traceback."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in lines[0]
    return lines[0]
