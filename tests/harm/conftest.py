"""Compares a cell, and records its numbers for the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harm.cells import TIMES, check
from tests.harm.rows import Cell


@pytest.fixture
def compared(record_property: Callable[[str, object], None]) -> Callable[[Cell], None]:
    """Runs a cell, and fails when it differs from the same program untraced."""

    def run(cell: Cell) -> None:
        result = check(cell)
        record_property("equal", result.equal)
        record_property("times", TIMES)
        record_property("problems", result.problems)
        if result.problems:
            words = [*result.problems, f"untraced: status {result.untraced.status}, printed {result.untraced.stdout!r}"]
            pytest.fail("\n".join([*words, result.stderr[-2000:]]), pytrace=False)

    return run
