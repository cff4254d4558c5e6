"""What is noted of DistributedDataParallel, and what it is not asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.blackbox.schema import Entry
from pytracer.record.torch.ddp import _write_layout


class Refuses:
    """TorchLibrary, where the Reducer of torch 2.15 has no buckets yet."""

    def buckets(self, reducer: object) -> list[object]:
        raise RuntimeError("Gradient bucket storage has not been allocated yet.")


class Knows(Refuses):
    """Where it has."""

    def buckets(self, reducer: object) -> list[object]:
        return [(0, 4096, 64, [(7, 0, 64)])]


class Journal:
    """The core, as far as it is called."""

    def __init__(self) -> None:
        self.entries: list[tuple[object, Any]] = []
        self.notes: list[str] = []

    def journal(self, kind: object, data: object) -> None:
        self.entries.append((kind, data))

    def note(self, code: object, text: str, subject: str = "") -> None:
        self.notes.append(text)


def wrapped() -> Any:
    return SimpleNamespace(name="Net", layout=None, generation=-1, fqns={7: "encoder.weight"})


def test_layout_of_the_buckets_is_written() -> None:
    box: Any = Journal()
    module: Any = SimpleNamespace(reducer=None, lazy_bucket_allocation=False)
    known: Any = Knows()
    _write_layout(box, known, module, wrapped())
    ((kind, data),) = box.entries
    assert (kind, data["buckets"][0]["parameters"][0]["fqn"]) == (Entry.BUCKETS, "encoder.weight")
    assert not box.notes


def test_reducer_that_allocates_its_buckets_late_is_not_asked() -> None:
    """It raises outside of a backward; one note says that buckets are not followed."""
    box: Any = Journal()
    module: Any = SimpleNamespace(reducer=None, lazy_bucket_allocation=True)
    refuses: Any = Refuses()
    own = wrapped()
    for _ in range(3):
        _write_layout(box, refuses, module, own)
    assert not box.entries
    assert box.notes == [
        "DDP's buckets of Net are not followed: with lazy_bucket_allocation each backward allocates new ones"
    ]
    module.lazy_bucket_allocation = False
    with pytest.raises(RuntimeError):
        _write_layout(box, refuses, module, own)
