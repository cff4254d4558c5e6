"""The first part of an object that no queue sends; nothing with `--no-values`, or of objects that are sent."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pytracer.record.torch.queues import unsendable

torch = pytest.importorskip("torch")


def local() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (lambda: {"x": torch.ones(2, requires_grad=True) * 2}, "['x']", "a tensor with a graph"),
        (lambda: [1, (2, lambda: 0)], "[1][1]", "a lambda"),
        (lambda: {"a": {"f": local()}}, "['a']['f']", "a local function"),
        (lambda: (n for n in range(2)), "it", "a generator"),
        (lambda: {3: sys}, "[3]", "a Python module"),
    ],
)
def test_part_that_cannot_be_sent(make: Any, name: str, value: str) -> None:
    assert unsendable(make()) == [{"name": name, "value": value}]


@pytest.mark.parametrize(
    "thing", [{"x": torch.ones(2, requires_grad=True)}, [torch.ones(2)], {"f": local}, "text", None, [[[[[print]]]]]]
)
def test_what_is_sent_is_no_reason(thing: object) -> None:
    """The look-alikes: a leaf, a function of a module; and what is too deep."""
    assert unsendable(thing) == []


def test_long_list_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsendable([*range(100_000), lambda: 0]) == []
    monkeypatch.setattr("pytracer.record.torch.queues.records_values", lambda: False)
    assert unsendable(lambda: 0) == []
