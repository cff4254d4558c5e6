"""Selects CUDA: the fake runtime built by `make test-cuda`, or a real device (PYTRACER_REAL_CUDA=1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAKE = os.environ.get("PYTRACER_FAKECUDA", "")
REAL = os.environ.get("PYTRACER_REAL_CUDA") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips all tests without CUDA of either kind; a mark skips those that a real device cannot run."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        if not FAKE and not REAL:
            item.add_marker(pytest.mark.skip(reason="needs torch for CUDA on the fake runtime: make test-cuda"))
        elif REAL and item.get_closest_marker("fake_cuda"):
            item.add_marker(pytest.mark.skip(reason="uses the controls of the fake runtime, or two devices"))


@pytest.fixture(scope="session", autouse=True)
def cuda_libraries() -> None:
    """The fake libraries are found first by every process that the tests start."""
    if FAKE:
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = FAKE + (":" + before if before else "")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory that does not exist yet."""
    return tmp_path / "run"
