"""Run directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.debug_information import debug_information_is_parsed_once

__all__ = ["debug_information_is_parsed_once"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory that does not exist yet."""
    return tmp_path / "run"
