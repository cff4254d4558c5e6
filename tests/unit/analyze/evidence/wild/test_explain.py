"""Which explanation of a wild address is taken where several may hold."""

from __future__ import annotations

from typing import Any

import pytest

from pytracer.analyze.evidence.native.jumps import Jump
from pytracer.analyze.evidence.wild import explain
from pytracer.analyze.evidence.wild.small_argument import SmallArgument
from pytracer.analyze.evidence.wild.taken_jump import WildJump
from pytracer.analyze.evidence.wild.unexplained import Unexplained

VIEW: Any = None


def finds(found: object) -> Any:
    """A finder that always finds that."""
    return lambda view: found


def test_the_first_explanation_that_is_found_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the list; where none is found, the address is unexplained."""
    first, second = SmallArgument("`a`", "`b`", 8), SmallArgument("`c`", "`d`", 8)
    monkeypatch.setattr(explain, "_FINDERS", (finds(None), finds(first), finds(second)))
    assert explain.explained_access(VIEW) is first
    monkeypatch.setattr(explain, "_FINDERS", (finds(None),))
    assert explain.explained_access(VIEW) == Unexplained()


@pytest.mark.parametrize("indexed", [True, False])
def test_overflow_gives_way_to_an_index_out_of_a_storage(indexed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a register points at a storage and an index out of it may be meant, no overflow is claimed."""
    overflow, index = object(), SmallArgument("`a`", "`b`", 8)
    monkeypatch.setattr(explain, "may_be_indexed", lambda view: indexed)
    monkeypatch.setattr(explain, "unread_index", finds(None))
    monkeypatch.setattr(explain, "expanded_argument", finds(None))
    monkeypatch.setattr(explain, "small_argument", finds(index))
    monkeypatch.setattr(explain, "int_overflow", finds(overflow))
    monkeypatch.setattr(explain, "_FINDERS", (explain._overflow, explain._wrong_index))
    found: Any = explain.explained_access(VIEW)
    assert found is (index if indexed else overflow)


def test_jump_is_explained_by_what_was_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else by how the processor got there alone."""
    overwritten, jump = object(), Jump("return", 0x41)
    monkeypatch.setattr(explain, "freed_callback", finds(None))
    monkeypatch.setattr(explain, "overwritten_memory", finds(overwritten))
    found: Any = explain.explained_jump(VIEW, jump)
    assert found is overwritten
    monkeypatch.setattr(explain, "overwritten_memory", finds(None))
    assert explain.explained_jump(VIEW, jump) == WildJump(jump)
