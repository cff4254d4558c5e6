"""Children that work the core at speed or crash in chosen ways: Python with libpytracer_testing loaded by ctypes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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
