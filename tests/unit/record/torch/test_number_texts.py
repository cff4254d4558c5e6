"""Texts that read as numbers are recorded with what they hold; other texts, long rows of digits and secrets are not."""

from __future__ import annotations

import collections
from types import SimpleNamespace

import pytest

from pytracer.record.torch.number_texts import number_texts


def test_texts_of_a_configuration_are_found_two_deep() -> None:
    """Under the names that the code has for them."""
    held = {
        "rate": "0.1",
        "config": {"optimizer": {"lr": "1e-4", "amsgrad": False}, "deeper": {"one": {"more": "1"}}},
        "args": SimpleNamespace(width=" 64 "),
    }
    told = {item["name"]: item["value"] for item in number_texts(held)}
    assert told == {
        "text of rate": "0.1",
        "text of config['optimizer']['lr']": "1e-4",
        "text of args.width": "64",
    }


@pytest.mark.parametrize(
    "held",
    [
        {"name": "run-7"},
        {"card": "4111111111111111"},
        {"password": "12345"},
        {"options": {"api_key": "1e4"}},
        {"number": 3},
        {"rows": ["1e-4"]},
        {"e": "e5", "dot": "."},
    ],
)
def test_other_texts_are_not_recorded(held: dict[str, object]) -> None:
    """The look-alikes."""
    assert number_texts(held) == []


def test_nothing_of_the_program_s_own_runs() -> None:
    """Properties, items of its own tables, and what claims to be of another class."""

    class Table(collections.UserDict[str, str]):
        def __getitem__(self, key: str) -> str:
            raise AssertionError

        @property
        def rate(self) -> str:
            raise AssertionError

    assert number_texts({"table": Table(lr="1"), "kind": Table}) == [
        {"name": "text of table.data['lr']", "value": "1"}  # a plain dict of its own
    ]


def test_nothing_is_recorded_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--no-values`."""
    monkeypatch.setattr("pytracer.record.torch.number_texts.records_values", lambda: False)
    assert number_texts({"rate": "0.1"}) == []
