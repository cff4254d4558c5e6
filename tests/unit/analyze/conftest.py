"""A run directory for recordings built by hand."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An empty run directory."""
    (tmp_path / "boxes").mkdir()
    return tmp_path
