"""Fixtures of the victims: their native half, compiled once per test process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.crash import compiled
from tests.support.debug_information import debug_information_is_parsed_once

__all__ = ["debug_information_is_parsed_once"]


@pytest.fixture(scope="session", autouse=True)
def faults_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """tests/crash/programs/faults.c, named by FAULTS_LIBRARY in the environment of all victims."""
    library = compiled(tmp_path_factory.mktemp("faults"))
    os.environ["FAULTS_LIBRARY"] = str(library)
    yield library
    del os.environ["FAULTS_LIBRARY"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory that does not exist yet."""
    return tmp_path / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Run directories for results that several tests of a module share."""
    return lambda: tmp_path_factory.mktemp("shared") / "run"
