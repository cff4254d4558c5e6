"""Operands that a write which ran on has probably gone over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import overwritten_operands
from pytracer.analyze.evidence.operators.overwritten_operands import may_be_overwritten

BASE, NBYTES = 0x1000_0000, 6408
END = BASE + NBYTES


@pytest.mark.parametrize(
    ("base", "access", "maximum", "doubted"),
    [
        (END + 512, "write", 1, True),
        (END + 512, "write", 5000, False),
        (END + 512, "read", 1, False),
        (BASE - 512, "write", 1, False),
        (END + (32 << 20), "write", 1, False),
    ],
    ids=["between", "its numbers differ", "a read", "before the storage", "behind the address"],
)
def test_numbers_between_the_storage_and_the_address_are_doubted(
    base: int, access: str, maximum: int, doubted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that wrote element by element past the end of its result put the same number into all of them."""
    monkeypatch.setattr(overwritten_operands, "ran_on", lambda view: None)
    storage = SimpleNamespace(base=BASE, nbytes=NBYTES)
    place = SimpleNamespace(kind="past-storage", storage=storage, overrun=None, addr=END + (22 << 20))
    view: Any = SimpleNamespace(place=place, fault=SimpleNamespace(access=access))
    item: Any = SimpleNamespace(base=base, minimum=1, maximum=maximum, elements=40000)
    assert may_be_overwritten(view, item) == doubted
