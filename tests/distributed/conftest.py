"""Run directories."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory that does not exist yet."""
    return tmp_path / "run"
