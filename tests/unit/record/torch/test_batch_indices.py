"""Indices of a batch that could not be joined; nothing of a sample that failed itself."""

from __future__ import annotations

import pytest

from pytracer.record.torch.batch_indices import batch_indices

data = pytest.importorskip("torch").utils.data


class _Rows:
    def __len__(self) -> int:
        return 9

    def __getitem__(self, n: int) -> object:
        if n == 8:
            raise KeyError("x")
        return 1 if n < 7 else None


def _of(sampler: list[int]) -> list[dict[str, str]]:
    with pytest.raises((TypeError, KeyError, RuntimeError)) as caught:
        [*data.DataLoader(_Rows(), batch_size=3, sampler=sampler)]
    return batch_indices(caught.value.__traceback__)


def test_indices_are_those_of_the_batch() -> None:
    """In its order."""
    assert _of([3, 7, 0]) == [{"name": "indices of the batch", "value": "3 7 0"}]


def test_sample_that_raised_has_none() -> None:
    """The batch was not there yet."""
    assert _of([3, 8, 0]) == []
