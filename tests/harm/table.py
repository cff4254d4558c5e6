"""Rows as parameters of pytest."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.harm.rows import Cell, Row, cells_of, covering, quick


def parameters(rows: Iterable[Row]) -> list[object]:
    """The cells of these rows; those that `make test`, and those that `make test-all` leaves out are marked."""
    return [pytest.param(cell, id=str(cell), marks=_marks(cell)) for cell in cells_of(rows)]


def _marks(cell: Cell) -> list[pytest.MarkDecorator]:
    if cell not in covering():
        return [pytest.mark.every_row]
    return [] if cell in quick() else [pytest.mark.slow]
