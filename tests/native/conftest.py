"""Children that work the core at speed or crash in chosen ways: Python with libpytracer_testing loaded by ctypes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.harness import Native
from tests.support.cli import ROOT
from tests.support.debug_information import debug_information_is_parsed_once

__all__ = ["debug_information_is_parsed_once"]

BUILT = ROOT / "build" / "native" / "testing"


@pytest.fixture(scope="session")
def built() -> Path:
    """The directory of the libraries of csrc/testing."""
    if not (BUILT / "libpytracer_testing.so").exists():
        pytest.fail("the libraries of csrc/testing are not built: make build")
    return BUILT


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory of its own, removed at once: recordings with grown tables are large."""
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
