"""Rows as parameters of pytest."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.harm.rows import Row, cells_of, covering


def parameters(rows: Iterable[Row]) -> list[object]:
    """The cells of these rows; those beyond the covering subset are marked."""
    quick = covering()
    beyond = [pytest.mark.every_row]
    return [pytest.param(cell, id=str(cell), marks=[] if cell in quick else beyond) for cell in cells_of(rows)]
