"""The table of assertions in torch's kernels: each entry is reached, and none is taken for another."""

from __future__ import annotations

import pytest

from pytracer.analyze.known.device_assertions import Meaning, meaning_of, meanings


def _id(meaning: Meaning) -> str:
    return f"{meaning.file}-{meaning.function}-{meaning.condition}"


@pytest.mark.parametrize("meaning", meanings(), ids=_id)
def test_no_earlier_entry_stands_in_front_of_another(meaning: Meaning) -> None:
    """The first that fits holds: an entry behind a wider one would never be told."""
    assert (
        meaning_of(f"/pytorch/aten/src/ATen/native/cuda/{meaning.file}", meaning.function, meaning.condition) is meaning
    )


def test_an_assertion_of_another_library_has_no_meaning() -> None:
    """A file of that name elsewhere would be taken for torch's: its condition differs."""
    assert meaning_of("/home/me/kernels.cu", "scale_rows", "row < rows") is None
    assert meaning_of("/home/me/Loss.cu", "scale_rows", "row < rows") is None
