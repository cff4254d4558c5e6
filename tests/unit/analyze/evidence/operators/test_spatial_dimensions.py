"""Convolutions of more than three spatial dimensions, and others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import spatial_dimensions as module
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor
from pytracer.analyze.evidence.operators.spatial_dimensions import SpatialDimensions, spatial_dimensions


def tensor(*sizes: int, name: str | None = None, dtype: str = "float32") -> OperatorTensor:
    item: Any = SimpleNamespace(sizes=sizes, dimensions=len(sizes), undefined=False, dtype=dtype)
    return OperatorTensor(item, name, None, passed=True)


def found(
    monkeypatch: pytest.MonkeyPatch, *tensors: OperatorTensor, operator: str = "aten::convolution"
) -> SpatialDimensions | None:
    """Of a process that was in that operator at line 17."""
    monkeypatch.setattr(module, "find_operator", lambda view: Operator(operator, None, tensors))
    monkeypatch.setattr(module, "line_words", lambda view: "line 17")
    view: Any = None
    return spatial_dimensions(view)


def test_fourth_spatial_dimension_is_named_with_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several the one with a name."""
    told = found(monkeypatch, tensor(8), tensor(1, 8, 4, 4, 4, 4), tensor(8, 1, 2, 2, 2, 2, name="parameter up.weight"))
    assert told is not None
    assert told.summary.startswith(
        "convolution() was given 4 spatial dimensions (parameter up.weight [8, 1, 2, 2, 2, 2])"
    )
    assert told.advice.startswith("Do not pass 4 spatial dimensions to convolution() at line 17")


@pytest.mark.parametrize(
    ("tensors", "operator"),
    [
        ([tensor(1, 8, 4, 4, 4), tensor(8, 1, 2, 2, 2)], "aten::convolution"),
        ([tensor(1, 8, 4, 4, 4, 4)], "aten::sum"),
        ([tensor(1, 8, 4, 4, 4, 4)], "other::sparse_convolution"),
        ([tensor(1, 8, 4, 4, 4, 4, dtype="int64")], "aten::convolution"),
    ],
    ids=["three", "no convolution", "an extension's", "indices"],
)
def test_other_operators_are_left_alone(
    tensors: list[OperatorTensor], operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-alikes."""
    assert found(monkeypatch, *tensors, operator=operator) is None
