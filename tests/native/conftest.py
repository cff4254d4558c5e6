"""Children that work the core at speed or crash in chosen ways: Python with libpytracer_testing loaded by ctypes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.harness import CSRC, PACKAGE, Native
from tests.support.cli import ROOT
from tests.support.debug_information import debug_information_is_parsed_once

__all__ = ["debug_information_is_parsed_once"]

BUILT = ROOT / "build" / "testing"


def _make(target: Path, sources: list[Path], command: list[str]) -> None:
    if target.exists() and all(s.stat().st_mtime <= target.stat().st_mtime for s in sources):
        return
    aside = target.with_suffix(f".{os.getpid()}")
    env = {**os.environ, "LD_PRELOAD": ""}
    subprocess.run([*command, "-o", str(aside)], check=True, env=env)
    aside.rename(target)


@pytest.fixture(scope="session")
def built() -> Path:
    """build/testing with its libraries; made once, whichever worker comes first."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler ({compiler}) to build csrc/testing with")
    BUILT.mkdir(parents=True, exist_ok=True)
    headers = [p for room in ("blackbox", "recorder", "crashsafe") for p in (CSRC / room).glob("*.h")]
    common = ["-O2", "-g1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        testing, watch = CSRC / "testing" / "testing.cpp", CSRC / "testing" / "watch_allocations.c"
        _make(
            BUILT / "libpytracer_testing.so",
            [testing, *headers],
            [compiler, "-std=c++20", *common, str(testing), f"-L{PACKAGE}", "-lpytracer_core", f"-Wl,-rpath,{PACKAGE}"],
        )
        redact = [CSRC / "testing" / "redact.cpp", CSRC / "crashsafe" / "redact.cpp"]
        _make(
            BUILT / "libredact.so",
            [*redact, CSRC / "crashsafe" / "secret_words.inc"],
            [compiler, "-std=c++20", *common, *map(str, redact)],
        )
        # -fno-builtin: a compiler takes a malloc that is written here for its own
        _make(BUILT / "libwatch.so", [watch], [compiler, "-xc", "-fno-builtin", *common, str(watch)])
    return BUILT


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory of its own, removed at once: boxes with grown tables are large."""
    yield tmp_path / "run"
    shutil.rmtree(tmp_path / "run", ignore_errors=True)


@pytest.fixture
def native(built: Path, run: Path) -> Native:
    """Runs code in recorded children."""
    return Native(built, run)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """`small_disk(nbytes)` mounts a tmpfs of that size; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(nbytes: int) -> Path:
        at = tmp_path / "small"
        at.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "none", str(at)], capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
        mounted.append(at)
        return at

    yield mount
    for at in mounted:
        subprocess.run(["umount", "-l", str(at)], check=False)
