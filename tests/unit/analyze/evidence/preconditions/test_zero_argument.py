"""A number that an operator divides by, and that is passed as 0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.preconditions import zero_argument as module
from pytracer.analyze.evidence.preconditions.terms import Broken, Given, Side, broken
from pytracer.analyze.evidence.preconditions.zero_argument import zero_argument


def found_as(monkeypatch: pytest.MonkeyPatch, item: Broken | None, given: Given) -> Any:
    call = SimpleNamespace(operator="_native_multi_head_attention")
    violated = SimpleNamespace(broken=item, culprit=given, call=call) if item is not None else None
    monkeypatch.setattr(module, "violated", lambda view: violated)
    monkeypatch.setattr(module, "line_words", lambda view: "line 9")
    return zero_argument(SimpleNamespace())  # type: ignore[arg-type]


def test_number_that_is_0_is_named_with_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given("`heads`", value=0)
    found = found_as(monkeypatch, broken("num_head >= 1", {"num_head": given}), given)
    assert found is not None
    assert found.words == "`heads` is 0, which line 9 passes for `num_head` of _native_multi_head_attention"
    assert found.advice.startswith("Pass 1 or more for `num_head` at line 9")


@pytest.mark.parametrize("value", [-2, 5])
def test_other_numbers_are_not_named(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given("`heads`", value=value)
    assert found_as(monkeypatch, broken("num_head >= 1", {"num_head": given}), given) is None


def test_size_that_does_not_fit_is_no_divisor(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(0, "numel", "bias", None, ("bias",))
    assert found_as(monkeypatch, Broken(side, Side(4, None, None, None, ()), ""), Given("`bias`", elements=0)) is None
