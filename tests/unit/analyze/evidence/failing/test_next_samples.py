"""An item of a list for each worker of a DataLoader, where there are more workers than items."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program

SOURCE = """
from torch.utils.data import get_worker_info
class Shards:
    def __init__(self):
        self.files = ['a', 'b']
    def __iter__(self):
        info = get_worker_info() or Info()
        number = {number}
        return iter(self.files[number])
class Info:
    id = 2
iter(Shards())
"""


def words_of(folder: Path, number: str, workers: int | None) -> str:
    """What is said of it in one of so many workers."""

    def judge(snapshot: Any, *others: Any) -> Any:
        snapshot.worker = SimpleNamespace(num_workers=workers) if workers is not None else None
        return explained(snapshot, *others)

    return of_program(folder, SOURCE.format(number=number), judge) or ""


def test_more_workers_than_items_are_told_with_their_number(tmp_path: Path) -> None:
    """Each is to take every n-th item, so that some may have none."""
    found = words_of(tmp_path, "get_worker_info().id if get_worker_info() else Info.id", 3)
    assert "has 2 items, and `number` is 2: it is the number of the worker, and there are 3 workers." in found


@pytest.mark.parametrize(("number", "workers"), [("info.id", None), ("len(self.files)", 3)])
def test_other_indices_are_no_numbers_of_workers(number: str, workers: int | None, tmp_path: Path) -> None:
    """Of a process that is no worker, and of another count."""
    assert "number of the worker" not in words_of(tmp_path, number, workers)
