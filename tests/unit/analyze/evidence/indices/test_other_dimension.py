"""An index that is beyond the rows of a tensor and fits another of its dimensions, and others that fit none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices.indexing_lines import IndexingLine
from pytracer.analyze.evidence.indices.other_dimension import other_dimension

LINE = IndexingLine("line 32", "Loss.forward", "scores[items]", "items", None, False, "scores")


def tensor(sizes: tuple[int, ...], low: int | None = None, high: int | None = None) -> Any:
    return SimpleNamespace(item=SimpleNamespace(sizes=sizes, minimum=low, maximum=high))


@pytest.mark.parametrize(
    ("sizes", "instead"),
    [((128, 16), "`scores.gather(1, items)`"), ((16,), "`scores[:, items]`"), ((200, 16), "`scores[:, items]`")],
    ids=["as gather() takes it", "one dimension", "more rows than there are"],
)
def test_positions_of_another_dimension(sizes: tuple[int, ...], instead: str) -> None:
    said = other_dimension([LINE], tensor(sizes, 0, 511), tensor((128, 512)), 128) or ""
    assert said.startswith(
        "`scores[items]` at line 32 takes rows, dimension 0 of 128, and the values of `items` (0..511)"
    )
    assert (
        f"fit dimension 1 of 512: if they are positions there, as topk() or argsort() along it give, write {instead}"
        in said
    )
    assert said.endswith("If they are row numbers, they must lie in 0..127.")


@pytest.mark.parametrize(
    ("line", "high", "table"),
    [
        (LINE, 600, (128, 512)),
        (LINE, 511, (128, 512, 600)),
        (LINE, 511, (128,)),
        (LINE, None, (128, 512)),
        (IndexingLine("line 3", "f", "F.embedding(items, w)", "items", None, False), 511, (128, 512)),
    ],
    ids=["beyond both", "fits two", "one dimension", "not known", "an embedding"],
)
def test_nothing_is_said_of_others(line: IndexingLine, high: int | None, table: tuple[int, ...]) -> None:
    assert other_dimension([line], tensor((128, 16), 0, high), tensor(table), 128) is None
