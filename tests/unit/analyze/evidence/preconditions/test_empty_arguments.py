"""Tensors of 0 elements where an operator takes some for granted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.preconditions import empty_arguments as module
from pytracer.analyze.evidence.preconditions.call import BoundCall
from pytracer.analyze.evidence.preconditions.terms import Given, broken
from pytracer.analyze.evidence.preconditions.violated import Violated
from pytracer.analyze.known.operators import preconditions
from pytracer.decode.types.snapshot import Argument

INPUT = Argument(
    1, 4096, 1024, 0, (4, 16, 4, 4), 4, "float32", "cpu", minimum=None, maximum=None, frame=0, outer_frame=2,
    register=None, how="reference",
)  # fmt: skip
TEXTS = {"input": "x", "running_mean": "self.mean", "running_var": "self.var", "training": "True"}


def told(
    monkeypatch: pytest.MonkeyPatch,
    training: int,
    elements: int = 0,
    empty: tuple[str, ...] = ("self.mean", "self.var"),
) -> module.EmptyArguments | None:
    entry = preconditions()["native_batch_norm"]
    given = {
        "input": Given("`x`", INPUT, elements=1024),
        "running_mean": Given("`self.mean`", elements=elements),
        "training": Given(str(training), value=training),
    }
    call = BoundCall("native_batch_norm", given, entry, 9, TEXTS)
    wrong = broken("numel(running_mean) == size(input, 1)", given)
    monkeypatch.setattr(module, "violated", lambda view: Violated(call, wrong) if wrong is not None else None)
    monkeypatch.setattr(module, "line_words", lambda view: "line 9")
    monkeypatch.setattr(module, "zero_size", lambda view, item: None)
    items: Any = [SimpleNamespace(expression=name, elements=elements) for name in empty]
    view: Any = SimpleNamespace()
    return module.empty_arguments(view, items)


def test_none_is_told_where_the_operator_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training the statistics are optional."""
    found = told(monkeypatch, training=1)
    assert found is not None
    assert found.summary == ", where native_batch_norm takes 16 for granted (size 1 of `x` [4, 16, 4, 4])"
    assert found.advice.startswith("Pass None for `self.mean` and `self.var` at line 9, or a tensor of 16 elements: ")


def test_none_is_not_told_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, training=0)
    assert found is not None and found.advice.startswith("Give `self.mean` and `self.var` 16 elements before line 9: ")


def test_tensors_with_elements_are_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory was taken away, or they are too small: other findings."""
    assert told(monkeypatch, training=1, elements=8) is None


def test_none_is_not_told_of_one_of_two_that_torch_takes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises ValueError where only one of them is None."""
    found = told(monkeypatch, training=1, empty=("self.mean",))
    assert found is not None and found.advice.startswith("Give `self.mean` 16 elements before line 9: ")
