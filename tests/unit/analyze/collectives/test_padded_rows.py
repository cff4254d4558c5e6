"""Rows of different lengths that ranks gather, and gathers that differ otherwise."""

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.padded_rows import padded_rows


def calls(*sizes: tuple[int, ...], op: str = "all_gather", file: str = "/env/torch/distributed/c10d.py") -> Any:
    frame = SimpleNamespace(file=file)
    return [SimpleNamespace(op=op, sizes=item, python=frame, caller=None) for item in sizes]


def test_as_many_rows_of_different_lengths_are_to_be_padded() -> None:
    said = padded_rows(calls((8, 37), (8, 38)))
    assert said is not None
    assert said.startswith(
        "The ranks gather 8 rows each, of 37 and 38 in dimension 1: a batch that is padded to its own"
    )
    assert "F.pad()" in said
    accelerate = padded_rows(calls((8, 37), (8, 38), file="/env/accelerate/utils/operations.py"))
    assert accelerate is not None and "`accelerator.pad_across_processes(x, dim=1)`" in accelerate


@pytest.mark.parametrize(
    "given",
    [
        calls((7, 37), (8, 37)),
        calls((7, 36), (8, 37)),
        calls((37,), (38,)),
        calls((8, 37), (8, 37, 1)),
        calls((8, 37), (8, 38), op="all_reduce"),
        calls((8, 37), (8, 37)),
    ],
    ids=["fewer rows", "both", "one dimension", "other dimensions", "a reduction", "alike"],
)
def test_other_differences_are_not_of_padding(given: Any) -> None:
    assert padded_rows(given) is None
