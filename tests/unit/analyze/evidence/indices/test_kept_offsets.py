"""Row pointers that are still offsets of a larger matrix, and other indices that are large."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import sparse_source as sparse
from pytracer.analyze.evidence.indices.kept_offsets import KeptOffsets, kept_offsets
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of


def tensor(elements: int, low: int | None, high: int | None, *, dimensions: int = 1, is_integer: bool = True) -> Any:
    item = SimpleNamespace(elements=elements, minimum=low, maximum=high, dimensions=dimensions, is_integer=is_integer)
    return SimpleNamespace(item=item, name=None)


COLUMNS = tensor(160, 0, 1199)
OF_WHOLE = [
    ([tensor(41, 4640, 4800), COLUMNS], KeptOffsets(4640, 4800)),
    ([tensor(41, 4640, 4800), COLUMNS, tensor(41, 4640, 4800)], KeptOffsets(4640, 4800)),  # converted to int32, too
    ([tensor(41, 0, 160), COLUMNS], None),  # as they must be
    ([tensor(41, 4640, 4801), COLUMNS], None),  # of others
    ([tensor(41, None, None), COLUMNS], None),
    ([tensor(41, 4640, 4800), tensor(160, None, None, is_integer=False)], None),  # no indices
    ([tensor(160, 4640, 4800)], None),  # as many as their own span
    ([tensor(41, 4640, 4800), COLUMNS, tensor(9, 10, 170)], None),  # two that fit
]


@pytest.mark.parametrize(("tensors", "found"), OF_WHOLE)
def test_pointers_that_count_the_indices_but_begin_later(tensors: list[Any], found: KeptOffsets | None) -> None:
    operator: Any = SimpleNamespace(tensors=tensors)
    assert kept_offsets(operator) == found


@pytest.mark.parametrize(("constructor", "named"), [("sparse_csr_tensor", True), ("sparse_coo_tensor", False)])
def test_advice_is_to_subtract_the_first(
    constructor: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a COO tensor are no pointers."""
    view = view_of(tmp_path, f"crow = whole[8:]\na = torch.{constructor}(crow, col, vals, (n, m))\nb = a @ x\n", 3)
    view.fault = SimpleNamespace(access="read")
    monkeypatch.setattr(sparse, "find_operator", lambda view: SimpleNamespace(tensors=OF_WHOLE[0][0]))
    found = sparse.sparse_source(view)
    assert found is not None
    says = sparse.sparse_advice(view, found)
    assert says.startswith("Subtract the first value of `crow` (line 1: `crow = whole[8:]`) at line 2, where") == named
    assert ("from 4640 to 4800, and must begin at 0 and end at 160" in says) == named
