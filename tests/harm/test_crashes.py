"""Crashes end a process as untraced, also under a debugger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conditions import needs_compiler, needs_core
from tests.harm.rows import Cell, crashes
from tests.harm.table import parameters

pytestmark = [needs_core, needs_compiler]


@pytest.mark.parametrize("cell", parameters(crashes()))
def test_ends_as_untraced(cell: Cell, compared: Callable[[Cell], None]) -> None:
    """Status, standard output, disk and, where that is the claim, CPU time."""
    compared(cell)
