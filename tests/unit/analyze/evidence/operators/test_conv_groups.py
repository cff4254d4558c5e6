"""A quantized convolution with more groups than output channels, and convolutions whose sizes fit."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import conv_groups as tested
from pytracer.analyze.evidence.operators.conv_groups import conv_groups
from pytracer.analyze.evidence.operators.operator import OperatorTensor

CONV = "qnnpack::qnnpackConv(pytorch_qnnp_operator*, void*)"


def tensor(name: str, dtype: str, *sizes: int) -> Any:
    item = SimpleNamespace(dtype=dtype, sizes=sizes, dimensions=len(sizes), elements=1, strides=(), offset=0)
    return OperatorTensor(item, name, None, passed=False)  # type: ignore[arg-type]


def found(
    monkeypatch: pytest.MonkeyPatch, data: tuple[int, ...], weight: tuple[int, ...], *functions: str, source: str = ""
) -> Any:
    tensors = (tensor("x", "quint8", *data), tensor("w", "qint8", *weight), tensor("image", "float32", *data))
    monkeypatch.setattr(tested, "line_tensors", lambda view: tensors)
    monkeypatch.setattr(tested, "line_words", lambda view: "line 4")
    monkeypatch.setattr(tested, "program_frames", lambda view: [])
    monkeypatch.setattr(tested, "program_files", lambda snapshot, frames: {"train.py": ast.parse(source)})
    monkeypatch.setattr(tested, "line_text", lambda snapshot, frame: source.splitlines()[frame.line - 1])
    monkeypatch.setattr(tested, "place_of", lambda view, file, line: f"line {line}")
    stack = tuple(SimpleNamespace(function=name) for name in functions or (CONV,))
    view = SimpleNamespace(crash=SimpleNamespace(native_stack=stack), process=SimpleNamespace(snapshot=None))
    return conv_groups(view)  # type: ignore[arg-type]


def test_groups_are_told_by_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(monkeypatch, (2, 16, 30), (3, 4, 5))
    assert told.words.startswith("the convolution has 4 groups (`x` has 16 channels, `w` [3, 4, 5] takes 4 for each")
    assert told.words.endswith("but 3 output channels, and 3 // 4 is 0")
    assert "sets `out_channels`" not in told.advice


def test_line_that_sets_the_output_channels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(monkeypatch, (2, 8, 9, 9), (6, 1, 3, 3), source="conv.out_channels = 6\n")
    assert "Line 1 (`conv.out_channels = 6`) sets `out_channels`, and no line there sets `groups`." in told.advice
    both = found(monkeypatch, (2, 8, 9, 9), (6, 1, 3, 3), source="conv.out_channels = 6\nconv.groups = 6\n")
    assert "sets `out_channels`" not in both.advice


@pytest.mark.parametrize(
    ("data", "weight", "functions"),
    [
        ((2, 8, 9, 9), (8, 1, 3, 3), ()),
        ((2, 8, 9, 9), (6, 3, 3, 3), ()),
        ((2, 8, 9, 9), (6, 1, 3), ()),
        ((2, 8, 9, 9), (6, 1, 3, 3), ("qnnpack::qnnpackDeConv()", CONV)),
        ((2, 8, 9, 9), (6, 1, 3, 3), ("at::native::quantized::MakeConvOutputShape", CONV)),
        ((2, 8, 9, 9), (6, 1, 3, 3), ("at::native::_convolution",)),
    ],
    ids=["depthwise", "no groups", "dimensions", "transposed", "stride", "float"],
)
def test_other_convolutions_are_not_named(
    data: tuple[int, ...], weight: tuple[int, ...], functions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(monkeypatch, data, weight, *functions) is None
