"""Batches of samples, abbreviated to fit a record."""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.blackbox.schema import ON_FETCH, TEXT_RECORD
from pytracer.record.torch.dataloader_workers import _recorded, _recorded_wrapper, batch_words, dataset_name


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([0, 1, 2, 3], "4 0-3"),
        ([4, 9, 10, 11, 2], "5 4,9-11,2"),
        (7, "1 7"),
        ((), "0 "),
        ([None, None], "2 "),
        (["a", "b,c"], "2 'a','b;c'"),
        ([(1, 2)], "1 (1; 2)"),
        ([True, 2], "2 True,2"),
        (list(range(1000)), "1000 0-63,..."),
    ],
)
def test_indices_are_said_shortly(indices: Any, words: str) -> None:
    """Ranges of numbers are abbreviated; other keys are shown by repr()."""
    assert batch_words(indices) == words


@pytest.mark.parametrize("indices", [list(range(0, 999_999, 1001)), ["ä" * 500] * 9, [10**300] * 3])
def test_every_batch_fits_into_a_record(indices: Any) -> None:
    """What is left out is shown by dots."""
    words = batch_words(indices)
    assert words.endswith(",...")
    assert len(words.encode()) <= TEXT_RECORD.nbytes


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"dataset": [1, 2], "worker_id": 0}, "list"),
        ({"dataset_holder": [{1: 2}], "worker_id": 0}, "dict"),
        ({"dataset_holder": [], "worker_id": 0}, None),
        ({"worker_id": 0}, None),
    ],
)
def test_dataset_of_a_worker_is_named(arguments: dict[str, object], name: str | None) -> None:
    """torch 2.15 gives a worker a list, from which it takes the dataset."""
    assert dataset_name(arguments) == name
    assert arguments.get("dataset_holder") in (None, [], [{1: 2}])


class _Handed:
    """As torch's ExceptionWrapper."""

    def __init__(self, where: str) -> None:
        self.where, self.text = where, "".join(traceback.format_exception(*sys.exc_info()))


def test_error_of_a_worker_init_fn_is_recorded_where_its_text_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text for the other process has no line of ours; an error of a batch, recorded before, stands once."""
    written: list[tuple[BaseException, str]] = []
    monkeypatch.setattr(
        "pytracer.record.torch.exceptions.write",
        lambda _, error, __, on_its_way: written.append((error, on_its_way)),
    )
    box: Any = SimpleNamespace(recording=True, lib=SimpleNamespace(pytracer_record=lambda *_: None))
    wrapper = _recorded_wrapper(box, _Handed)
    errors: list[BaseException] = []

    def failing(_: object) -> None:
        errors.append(ZeroDivisionError("no worker"))
        raise errors[-1]

    for call in (failing, _recorded(box, failing)):
        try:
            call([0])
        except ZeroDivisionError:
            handed: Any = wrapper(where="in DataLoader worker process 0")
        assert handed.where == "in DataLoader worker process 0" and "dataloader_workers.py" not in handed.text.replace(
            "test_dataloader_workers.py", ""
        )
    assert written == [(error, ON_FETCH) for error in errors]
