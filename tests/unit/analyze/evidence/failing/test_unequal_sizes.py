"""Samples of unequal sizes: images are to be made alike, sequences to be padded."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.data.unequal_sizes import advice_of_sizes


def advice(one: str, other: str, source: str = "h = int(h * factor)\n", part: str = "") -> str:
    at: Any = SimpleNamespace(files={"train.py": ast.parse(source)}, in_file=lambda file, line: f"line {line}")
    return advice_of_sizes(at, one, other, part)


def test_cut_size_is_rounded() -> None:
    """343 * (224 / 343) is 223.99: of two images that differ by one row, the line that cuts is named."""
    found = advice("[3, 224, 224]", "[3, 223, 224]")
    assert found.startswith(
        "Return one size from the dataset: they differ by 1, and line 1 (`int(h * factor)`) may cut"
    )


@pytest.mark.parametrize(
    ("one", "other", "source"),
    [
        ("[3, 224, 224]", "[3, 180, 224]", "h = int(h * factor)\n"),
        ("[3, 224, 224]", "[3, 223, 224]", "h = int(text)\n"),
        ("[3, 224, 224]", "[3, 223, 224]", "a = int(h * f)\nb = int(w * f)\nc = int(d * f)\n"),
    ],
    ids=["by more", "no product", "too many lines"],
)
def test_no_line_is_blamed_where_none_need_have_cut(one: str, other: str, source: str) -> None:
    """The images are still to be made alike first."""
    found = advice(one, other, source)
    assert found.startswith("Return one size from the dataset. Or give") and "line" not in found


@pytest.mark.parametrize(
    ("one", "other"), [("[12]", "[17]"), ("[12, 64]", "[17, 64]"), ("Tensor", "int"), ("[3]", "[]")]
)
def test_sequences_are_padded_first(one: str, other: str) -> None:
    """Their lengths are meant to differ."""
    assert advice(one, other).startswith("Give the DataLoader a collate_fn that pads it")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[1, 32, 48]", "[3, 32, 48]"),
        ("[4, 32, 48]", "[3, 32, 48]"),
        ("[32, 48, 3]", "[32, 48, 1]"),
        ("[32, 48]", "[3, 32, 48]"),
        ("[32, 48, 3]", "[32, 48]"),
    ],
)
def test_gray_images_are_made_like_those_in_colour(one: str, other: str) -> None:
    """One size would not help, nor padding; of another name the first number may count objects."""
    assert advice(one, other, part="`image`").startswith("They differ in the number of channels")
    found = advice(one, other, part="`target['masks']`")
    assert found.startswith("If these are images") and "counts objects, give the DataLoader a collate_fn" in found


@pytest.mark.parametrize(
    ("one", "other"), [("[3, 32, 48]", "[3, 48, 32]"), ("[5, 32, 48]", "[3, 32, 48]"), ("[3, 4, 4]", "[1, 4, 4]")]
)
def test_other_sizes_are_no_channels(one: str, other: str) -> None:
    """Turned images, feature maps, and boxes."""
    assert "channels" not in advice(one, other, part="`image`")
