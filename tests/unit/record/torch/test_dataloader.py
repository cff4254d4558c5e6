"""What is recorded of a DataLoader: its numbers, as far as torch's own samplers know them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.record.torch import dataloader

torch = pytest.importorskip("torch")


class Counted:
    def __len__(self) -> int:
        return 14

    def __getitem__(self, index: int) -> int:
        return index


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
    def __iter__(self) -> Any:
        raise AssertionError("nobody may ask it")


def noted(dataset: object, **options: Any) -> dict[str, Any]:
    entries: list[dict[str, Any]] = []
    lib = SimpleNamespace(pytracer_count_hook_error=lambda: None)
    box: Any = SimpleNamespace(journal=lambda _, entry: entries.append(entry), lib=lib, note=pytest.fail)
    dataloader._note(box, torch.utils.data.DataLoader(dataset, **options))
    return entries[0]


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"batch_size": 28, "drop_last": True, "shuffle": True}, 0),
        ({"batch_size": 28}, 1),
        ({"batch_size": 4, "drop_last": True}, 3),
        ({"batch_size": None}, None),
        ({"batch_sampler": [[0, 1], [2]]}, None),
        ({"batch_size": 2, "sampler": [0, 1]}, None),
        ({"batch_size": 4, "sampler": torch.utils.data.RandomSampler(range(1000))}, None),
        ({"batch_size": 4, "sampler": torch.utils.data.SequentialSampler(range(2))}, None),
        ({"batch_size": 4, "sampler": torch.utils.data.RandomSampler(range(14), num_samples=8)}, None),
        ({"batch_sampler": torch.utils.data.BatchSampler(range(14), 28, drop_last=True)}, None),
    ],
    ids=[
        "none",
        "one",
        "some",
        "no batches",
        "own batches",
        "own sampler",
        "of others",
        "in order",
        "some of them",
        "given",
    ],
)
def test_batches_of_an_epoch_are_recorded_where_torch_counts_them(options: dict[str, Any], batches: int | None) -> None:
    entry = noted(Counted(), **options)
    assert (entry["samples"], entry["batches"]) == (14, batches)
    assert entry["at"]["function"] == "noted" and entry["at"]["file"] == __file__
    assert entry["drop_last"] is options.get("drop_last", False)


def test_dataset_is_asked_for_its_length_once() -> None:
    """A program's own __len__ may take its time; torch's samplers ask it in the constructor."""
    asked: list[int] = []

    class Slow(Counted):
        def __len__(self) -> int:
            asked.append(1)
            return 14

    torch.utils.data.DataLoader(Slow(), batch_size=4, shuffle=True)
    untraced = len(asked)
    assert noted(Slow(), batch_size=4, shuffle=True)["batches"] == 4
    assert len(asked) == 2 * untraced + 1


def test_a_stream_is_asked_nothing() -> None:
    entry = noted(Stream(), batch_size=4)
    assert (entry["samples"], entry["batches"], entry["batch_size"]) == (None, None, 4)
