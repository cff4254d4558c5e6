"""The quick part of the harm table covers every way and power."""

from __future__ import annotations

from tests.harm.rows import CELLS, ROWS, covering, quick


def test_quick_part_has_every_way_and_power() -> None:
    """Each pair of them; and what `make test-all` runs has each row besides."""
    assert {(cell.way, cell.power) for cell in quick()} == {(cell.way, cell.power) for cell in covering()}
    assert quick() < covering() < set(CELLS)
    assert {cell.row for cell in covering()} == {row for row in ROWS if not row.slow}
