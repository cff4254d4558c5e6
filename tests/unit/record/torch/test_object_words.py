"""Iterators, loaders and lists of an exception: what is left in them, and what they are made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from pytracer.record.torch.object_words import iterator_words, loader_words, unequal_items


@pytest.mark.parametrize(
    "made",
    [
        iter([1, 2]), iter((1, 2)), iter({1: 2}.values()), iter(range(2)), (n for n in [1, 2]), map(str, [1, 2]),
        filter(None, (n for n in [1, 2])), zip([1], (n for n in [1, 2]), strict=False), enumerate([1]),
        itertools.chain([1], [2]), itertools.islice([1, 2, 3], 2),
    ],
)  # fmt: skip
def test_iterator_is_used_up_once_it_was_read(made: Iterable[object]) -> None:
    """And asking takes nothing from it."""
    kind = type(made).__name__
    assert iterator_words(made) == kind
    assert iterator_words(made) == kind
    assert [*made]
    assert iterator_words(made) == f"{kind}, used up"


def test_iterator_of_the_program_is_left_alone() -> None:
    """Its class may do anything."""

    class Rows:
        def __iter__(self) -> Rows:
            raise AssertionError

        def __length_hint__(self) -> int:
            raise AssertionError

        __next__ = __iter__

    assert iterator_words(Rows()) is None


def test_loader_has_its_batch_size_and_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a dataset of the program, whose length is its own code, no samples."""
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    loader = data.DataLoader(data.TensorDataset(torch.ones(7, 2)), batch_size=2)
    assert loader_words(loader) == "DataLoader, batch_size=2, drop_last=False, 7 samples"

    class Own(data.Dataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 7

    assert loader_words(data.DataLoader(Own(), batch_size=2)) == "DataLoader, batch_size=2, drop_last=False"
    batches = iter(loader)
    next(batches)
    assert loader_words(batches) == "iterator of a DataLoader, 1 batches taken"
    monkeypatch.setenv("PYTRACER_NO_VALUES", "1")
    assert loader_words(loader) is None


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1], [1], [1, 2]], "list of 1; list of 2 at 2"),
        ([1, 2.5, None], "number; NoneType at 2"),
        ([1, 2.5, True], None),
        (["a", "bc"], None),
        ([[1, 2]], None),
    ],
)
def test_first_item_of_another_kind_is_found(rows: list[object], words: str | None) -> None:
    """Numbers are alike, and texts."""
    assert [item["value"] for item in unequal_items("rows", rows)] == ([words] if words else [])
