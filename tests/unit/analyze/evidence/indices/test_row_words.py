"""Values of an index that would fit if the smallest of them were subtracted."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.indices.reached_row import ReachedRow
from pytracer.analyze.evidence.indices.row_words import _shifted
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from tests.unit.analyze.rules.test_operators import tensor


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (24000, 24099, True),
        (24000, 24060, True),
        (24000, 24010, False),  # too few of them to be the numbers of the rows
        (24000, 24100, False),  # one too many
        (50, 149, False),  # some of them are rows
        (0, 24099, False),
    ],
)
def test_values_of_a_part_are_told(low: int, high: int, said: bool) -> None:
    data = OperatorTensor(tensor(0x1000, 100, 64), "out", None, passed=True)
    index = OperatorTensor(tensor(0x2000, 500, dtype="int64", minimum=low, maximum=high), "ids", None, passed=True)
    assert (
        f"They fit where {low} is subtracted" in _shifted(ReachedRow(data, low, 100, 256, exact=True), index)
    ) == said
